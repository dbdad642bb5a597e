// What a sweep over idle gaps found: figures, verdict, a table, and a file for the plot.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "syncfree/idle_gap/verdict.h"

namespace syncfree {
namespace detail {

inline std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// From 15 digits on, the fewest that are read as the same number; null if it is not finite.
inline std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[40];
  int significant = 15;
  // Printed and read back in the program's locale.
  for (; significant < 17; ++significant) {
    std::snprintf(buffer, sizeof(buffer), "%.*g", significant, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  return digits(value, significant);
}

}  // namespace detail

// Times are microseconds.
struct IdleGap {
  std::string name;
  Device::Type kind = Device::Type::kCpu;
  std::string device;            // in words
  std::vector<GapPoint> points;  // the shortest gap first
  std::string not_gateable;      // why the call cannot stand behind a gate; empty where it can
  std::vector<std::string> notes;

  // What makes the first call after a pause slow.
  GapVerdict verdict() const { return judge_gaps(points, kind, not_gateable); }

  // A table, the verdict and the notes, as Python prints them.
  std::string text() const {
    using Row = std::array<std::string, 5>;
    const auto time = [](double us) { return std::isnan(us) ? "-" : detail::duration(us); };
    std::vector<Row> rows{{"gap", "plain", "gated", "host", "MHz"}};
    for (const GapPoint& each : points)
      rows.push_back({each.gap == 0 ? "back to back" : detail::digits(each.gap, 6) + " s",
                      time(each.plain_us), time(each.gated_us), time(each.host_us),
                      std::isnan(each.megahertz) ? "-" : detail::megahertz_text(each.megahertz)});
    std::array<std::size_t, 5> widths{};
    for (const Row& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    std::string out = name + " on " + device;
    for (const Row& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i)
        out += (i == 0 ? "\n" : "  ") + std::string(widths[i] - row[i].size(), ' ') + row[i];
    out += "\n" + verdict().str();
    for (const std::string& note : notes) out += "\nnote: " + note;
    return out;
  }

  // The document that `syncfree bench idle-gap --json` writes, and also reads, to plot it:
  // syncfree bench idle-gap sweep.json --plot sweep.svg
  std::string json() const {
    using detail::json_number;
    using detail::json_text;
    std::string out = "{\"name\": " + json_text(name) +
                      ", \"kind\": " + (kind == Device::Type::kCpu ? "\"cpu\"" : "\"cuda\"") +
                      ", \"device\": " + json_text(device) + ", \"points\": [";
    for (const GapPoint& each : points)
      out += (&each == &points.front() ? "" : ", ") + ("{\"gap\": " + json_number(each.gap)) +
             ", \"plain_us\": " + json_number(each.plain_us) +
             ", \"plain_mad_us\": " + json_number(each.plain_mad_us) +
             ", \"host_us\": " + json_number(each.host_us) +
             ", \"gated_us\": " + json_number(each.gated_us) +
             ", \"megahertz\": " + json_number(each.megahertz) +
             ", \"device_allocations\": " + json_number(each.device_allocations) +
             ", \"n\": " + std::to_string(each.n) + "}";
    out += "], \"not_gateable\": " + json_text(not_gateable) + ", \"notes\": [";
    for (const std::string& note : notes)
      out += (&note == &notes.front() ? "" : ", ") + json_text(note);
    const GapVerdict found = verdict();
    return out + "], \"verdict\": {\"cause\": " + json_text(found.cause) +
           ", \"text\": " + json_text(found.text) + "}}\n";
  }
};

}  // namespace syncfree
