// Numbers and times as texts, the same in every locale.
#pragma once

#include <clocale>
#include <cstdio>
#include <cstring>
#include <string>

namespace syncfree {
namespace detail {

// Like printf's %g with `significant` digits, but with a decimal point even if the program's locale
// writes a comma. Uses printf and not a stream: a program that links libstdc++ statically beside
// torch's copy cannot print numbers to streams.
inline std::string digits(double value, int significant) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%.*g", significant, value);
  std::string text = buffer;
  const char* point = std::localeconv()->decimal_point;
  const std::size_t at = text.find(point);
  if (at != std::string::npos) text.replace(at, std::strlen(point), ".");
  return text;
}

// Three significant digits and a unit.
inline std::string duration(double microseconds) {
  if (microseconds >= 999.5e3) return digits(microseconds / 1e6, 3) + " s";
  if (microseconds >= 999.5) return digits(microseconds / 1e3, 3) + " ms";
  return digits(microseconds, 3) + " us";
}

}  // namespace detail
}  // namespace syncfree
