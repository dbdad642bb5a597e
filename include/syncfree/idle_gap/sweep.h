// The order of the calls in a sweep over idle gaps, and their evaluation; independent of devices.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "syncfree/idle_gap/result.h"
#include "syncfree/status.h"

namespace syncfree {
namespace detail {

// Calls before one counts as back to back: on an H200 the eight calls after a pause were also slow.
inline constexpr int kSettlingCalls = 16;
// Clocks ramp over tens of milliseconds: a shorter warm-up sees no drift.
inline constexpr double kLeastWarmUp = 0.1;
inline constexpr std::size_t kLeastWindow = 8;
inline constexpr double kDrift = 0.01;

// One timed call; microseconds.
struct GapSample {
  double us = 0;
  double host_us = 0;
  double megahertz = std::numeric_limits<double>::quiet_NaN();
  double device_allocations = std::numeric_limits<double>::quiet_NaN();
  bool gate_held = true;  // false: it opened before the host was through with the call
};

// Takes samples of one call.
class GapProbe {
 public:
  virtual ~GapProbe() = default;

  // Makes the first calls and learns how to take samples. If the call cannot stand behind a gate,
  // `not_gateable` becomes the reason.
  virtual Status prepare(std::string& not_gateable) = 0;

  // `gated` hides the host's launch time; `pause` is in seconds, right before the call.
  virtual Status sample(bool gated, double pause, GapSample& taken) = 0;
};

// NaN if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// Median absolute deviation from the median.
inline double mad(std::vector<double> values) {
  const double middle = median(values);
  for (double& each : values) each = std::abs(each - middle);
  return median(std::move(values));
}

// Relative change of the median from the third quarter of the times to the last: windows of a fixed
// length would not see a slow ramp. 0 if it is within the noise of the medians, NaN before there
// are enough times.
inline double drift(const std::vector<double>& times) {
  const std::size_t width = std::max(kLeastWindow, times.size() / 4);
  if (times.size() < 2 * width) return std::numeric_limits<double>::quiet_NaN();
  const auto step = static_cast<std::ptrdiff_t>(width);
  const std::vector<double> before(times.end() - 2 * step, times.end() - step),
      after(times.end() - step, times.end());
  const double change = median(after) - median(before);
  // Standard error of a median of n normal values: 1.2533 sigma / sqrt(n), sigma = 1.4826 MAD.
  const double noise =
      1.2533 * 1.4826 * std::hypot(mad(before), mad(after)) / std::sqrt(static_cast<double>(width));
  return std::abs(change) <= 2 * noise ? 0.0 : change / median(before);
}

// Makes calls until their time no longer drifts, or for `longest` seconds, which a note then tells.
inline Status warm_up(GapProbe& probe, bool gated, double longest,
                      std::vector<std::string>& notes) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::vector<double> times;
  std::size_t look_at = 1;  // sorting at each turn would outweigh short calls
  double change = std::numeric_limits<double>::quiet_NaN();
  for (double elapsed = 0; elapsed < longest;) {
    GapSample taken;
    if (Status status = probe.sample(gated, 0, taken); !status.ok()) return status;
    times.push_back(taken.us);
    elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (times.size() < look_at && elapsed < longest) continue;
    look_at = times.size() + 1 + times.size() / 10;
    change = drift(times);
    if (elapsed >= kLeastWarmUp && std::abs(change) < kDrift) return {};
  }
  if (std::abs(change) < kDrift) return {};
  const std::string sign = change < 0 ? "" : "+";
  notes.push_back("the warm-up ended at its limit of " + digits(longest, 3) + " s with " +
                  (std::isnan(change) ? "too few calls to tell"
                                      : "a drift of " + sign + digits(100 * change, 2) + "%"));
  return {};
}

// The samples after one gap.
struct GapSamples {
  double gap = 0;
  std::vector<double> plain, host, allocations, gated, megahertz;

  void add_plain(const GapSample& taken) {
    plain.push_back(taken.us);
    host.push_back(taken.host_us);
    if (!std::isnan(taken.device_allocations)) allocations.push_back(taken.device_allocations);
  }

  void add_gated(const GapSample& taken) {
    if (taken.gate_held) gated.push_back(taken.us);
    if (!std::isnan(taken.megahertz)) megahertz.push_back(taken.megahertz);
  }

  GapPoint point() const {
    return {gap,           median(plain),     mad(plain),          median(host),
            median(gated), median(megahertz), median(allocations), static_cast<int>(plain.size())};
  }
};

inline Status first_call(GapProbe& probe, double gap, bool gated, GapSample& taken) {
  for (int i = 0; gap == 0 && i < kSettlingCalls; ++i)
    if (Status status = probe.sample(gated, 0, taken); !status.ok()) return status;
  taken = {};
  return probe.sample(gated, gap, taken);
}

// Fills in what the probe finds: points, notes, and why there is no gate.
inline Status sweep(GapProbe& probe, std::vector<double> gaps, int repeats, double longest_warm_up,
                    IdleGap& found) {
  if (Status status = probe.prepare(found.not_gateable); !status.ok()) return status;
  const bool gateable = found.kind == Device::Type::kCuda && found.not_gateable.empty();
  if (Status status = warm_up(probe, gateable, longest_warm_up, found.notes); !status.ok())
    return status;
  gaps.push_back(0.0);
  std::sort(gaps.begin(), gaps.end());
  gaps.erase(std::unique(gaps.begin(), gaps.end()), gaps.end());
  std::vector<GapSamples> all(gaps.size());
  for (std::size_t i = 0; i < gaps.size(); ++i) all[i].gap = gaps[i];
  for (int turn = 0; turn < repeats; ++turn)
    // In turn, so that a drift of the machine does not look like an effect of the gap.
    for (std::size_t i = 0; i < all.size(); ++i) {
      GapSamples& here = all[(static_cast<std::size_t>(turn) + i) % all.size()];
      GapSample taken;
      if (Status status = first_call(probe, here.gap, false, taken); !status.ok()) return status;
      here.add_plain(taken);
      if (!gateable) continue;
      if (Status status = first_call(probe, here.gap, true, taken); !status.ok()) return status;
      here.add_gated(taken);
    }
  for (const GapSamples& each : all) found.points.push_back(each.point());
  return {};
}

}  // namespace detail
}  // namespace syncfree
