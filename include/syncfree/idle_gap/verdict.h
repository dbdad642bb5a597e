// What makes the first call after a pause slow, from the figures of a sweep: the rules and the
// words of Python's `syncfree bench idle-gap`.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "syncfree/duration.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

// Medians of the first calls after one gap. Times are microseconds; NaN where nothing is known.
struct GapPoint {
  double gap = 0;                                              // seconds of idleness before
  double plain_us = 0;                                         // between the events, without a gate
  double plain_mad_us = 0;                                     // median absolute deviation of that
  double host_us = 0;                                          // until the plain call returned
  double gated_us = std::numeric_limits<double>::quiet_NaN();  // between the events, behind a gate
  double megahertz = std::numeric_limits<double>::quiet_NaN();  // of the multiprocessors
  // How often memory was asked of the driver in a plain call.
  double device_allocations = std::numeric_limits<double>::quiet_NaN();
  int n = 0;  // plain calls
};

// The main cause. One of "none", "host launch", "allocator", "clock ramp", "memory", "gpu",
// "waits", "cpu" and "unexplained"; the text has the figures it rests on, and what to do.
struct GapVerdict {
  std::string cause;
  std::string text;

  std::string str() const { return cause == "none" ? text : cause + ": " + text; }
};

namespace detail {

inline constexpr double kSlower = 1.15;
inline constexpr double kMainShare = 0.5;  // of the time lost: what explains as much is the cause
inline constexpr double kLowClock = 0.9;

inline std::string megahertz_text(double megahertz) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", megahertz);
  return text;
}

// What to add if the host's launches hold up even the calls back to back.
inline std::string launches_text(const GapPoint& base) {
  if (std::isnan(base.gated_us) || base.plain_us < kSlower * base.gated_us) return "";
  return ". Even back to back the host's launches hold the GPU up: " + duration(base.plain_us) +
         " for " + duration(base.gated_us) + " of work";
}

inline GapVerdict host_cause(const GapPoint& base, const GapPoint& worst, std::string head) {
  head += ", while the GPU's work stays at " + duration(worst.gated_us);
  if (worst.device_allocations >= base.device_allocations + 1)  // false for NaN
    return {"allocator", head +
                             ": the allocator asked the driver for memory in the call. Something "
                             "emptied its cache in between, or other work took it"};
  if (worst.host_us - base.host_us >= kMainShare * (worst.plain_us - base.plain_us))
    return {"host launch", head + ": the host takes " + duration(worst.host_us) +
                               " to launch it instead of " + duration(base.host_us) +
                               ". Capture a graph or fuse" + launches_text(base)};
  return {"unexplained",
          head + ", and the host takes " + duration(worst.host_us) + " instead of " +
              duration(base.host_us) +
              ": what takes long is the way from the one to the other, as when driver or bus wake "
              "up"};
}

inline GapVerdict gpu_cause(const std::vector<GapPoint>& points, const GapPoint& base,
                            const GapPoint& worst, std::string head) {
  head += ", and behind a gate " + duration(worst.gated_us) + " instead of " +
          duration(base.gated_us) + ": ";
  if (std::isnan(worst.megahertz))
    return {"gpu", head + "the GPU itself is slower. Its clock could not be read"};
  double highest = worst.megahertz;
  for (const GapPoint& each : points) highest = std::fmax(highest, each.megahertz);
  if (worst.megahertz < kLowClock * highest)
    return {"clock ramp", head + "the clock is at " + megahertz_text(worst.megahertz) +
                              " MHz, and at " + megahertz_text(highest) +
                              " MHz when the GPU is kept busy"};
  return {"memory", head + "the GPU itself is slower at the same clock (" +
                        megahertz_text(worst.megahertz) +
                        " MHz), as when its data have left the caches or the device's memory"};
}

}  // namespace detail

// The main cause of the slowest first call, among those slower by more than calls vary.
// `points` has the shortest gap first; `not_gateable` says why the call cannot stand behind a gate.
inline GapVerdict judge_gaps(const std::vector<GapPoint>& points, Device::Type kind,
                             const std::string& not_gateable = {}) {
  using detail::duration;
  if (points.empty()) return {"none", "nothing was measured"};
  const GapPoint& base = points.front();
  const GapPoint *slowest = nullptr, *certain = nullptr;
  for (const GapPoint& each : points) {
    if (&each == &base || each.plain_us <= detail::kSlower * base.plain_us) continue;
    if (slowest == nullptr || each.plain_us > slowest->plain_us) slowest = &each;
    if (each.plain_us - base.plain_us <= each.plain_mad_us + base.plain_mad_us) continue;
    if (certain == nullptr || each.plain_us > certain->plain_us) certain = &each;
  }
  if (slowest == nullptr)
    return {"none",
            "no gap makes the first call slower than back to back" + detail::launches_text(base)};
  const GapPoint& worst = certain != nullptr ? *certain : *slowest;
  const double lost = worst.plain_us - base.plain_us;
  std::string head = "after " + detail::digits(worst.gap, 6) + " s a call takes " +
                     duration(worst.plain_us) + " instead of " + duration(base.plain_us);
  if (certain == nullptr)
    return {"unexplained",
            head + ", but calls vary by as much: by " + duration(worst.plain_mad_us) + " and " +
                duration(base.plain_mad_us) + " around these medians. More repeats tell" +
                detail::launches_text(base)};
  if (kind == Device::Type::kCpu)
    return {"cpu", head + ". On the CPU nothing tells caches, clock and scheduling apart"};
  if (std::isnan(worst.gated_us) || std::isnan(base.gated_us))
    return {"waits", head + "; it cannot be told why, as " +
                         (not_gateable.empty()
                              ? "the host did not get through the call before the gate opened"
                              : "the call is not gateable: " + not_gateable)};
  if (worst.gated_us - base.gated_us >= detail::kMainShare * lost)
    return detail::gpu_cause(points, base, worst, std::move(head));
  return detail::host_cause(base, worst, std::move(head));
}

}  // namespace syncfree
