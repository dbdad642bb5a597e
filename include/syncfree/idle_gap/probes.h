// How one call is timed: on a CUDA stream by events, as it is or behind a gate, and on the CPU.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "syncfree/idle_gap/sweep.h"
#include "syncfree/launch.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {
namespace detail {

inline constexpr int kFirstCalls = 3;
inline constexpr int kLooks = 5;
inline constexpr int kGateTries = 5;
inline constexpr double kGateMarginUs = 200;
inline constexpr double kLongestGateUs = SYNCFREE_LONGEST_GATE_US;
inline constexpr double kLongestGap = 1e6;  // seconds; far longer ones overflow a sleep

inline double now_us() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time).count();
}

inline void sleep_for(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Behind a gate, the time between the events is that of the GPU's work and not of its launches. If
// the body throws, the gate opens by itself.
class CudaGapProbe final : public GapProbe {
 public:
  using Count = std::function<std::int64_t()>;

  CudaGapProbe(std::function<void()> body, Count device_allocations)
      : body_(std::move(body)), device_allocations_(std::move(device_allocations)) {}

  // Must be called before anything else.
  Status open(int device, Stream stream) {
    syncfree_probe* probe = nullptr;
    Status status = status_of(syncfree_probe_create(device, stream, &probe));
    probe_.reset(probe);
    return status;
  }

  Status prepare(std::string& not_gateable) override {
    for (int i = 0; i < kFirstCalls; ++i) body_();
    std::vector<double> host;
    GapSample taken;
    for (int i = 0; i < kLooks; ++i) {
      if (Status status = sample(false, 0, taken); !status.ok()) return status;
      host.push_back(taken.host_us);
    }
    gate_us_ = std::min(3 * median(host) + kGateMarginUs, kLongestGateUs);
    double tried_us = 0;
    for (int i = 0; i < kGateTries && tried_us < kLongestGateUs; ++i) {
      tried_us = gate_us_;
      if (Status status = sample(true, 0, taken); !status.ok()) return status;
      if (taken.gate_held) return {};
    }
    not_gateable = "the host does not get through the call in " +
                   std::to_string(std::llround(tried_us)) +
                   " us, the longest gate tried: the call waits for the GPU, or makes more "
                   "launches than the driver queues (about 1000)";
    return {};
  }

  // The stream is idle when a sample begins, except the first one, which waits for the first calls.
  Status sample(bool gated, double pause, GapSample& taken) override {
    const std::int64_t allocations = device_allocations_ ? device_allocations_() : 0;
    sleep_for(pause);
    Status status = status_of(syncfree_probe_begin(probe_.get(), gated ? gate_us_ : 0.0));
    if (!status.ok()) return status;
    const double begin = now_us();
    body_();
    const double end = now_us();
    syncfree_probe_times times{};
    status = status_of(syncfree_probe_end(probe_.get(), &times));
    if (!status.ok()) return status;
    taken.us = times.us;
    taken.host_us = end - begin;
    taken.megahertz = times.megahertz;
    taken.gate_held = times.gate_held != 0;
    if (device_allocations_)
      taken.device_allocations = static_cast<double>(device_allocations_() - allocations);
    if (gated) grow_gate(taken.gate_held);
    return {};
  }

 private:
  struct Destroy {
    void operator()(syncfree_probe* probe) const { syncfree_probe_destroy(probe); }
  };

  void grow_gate(bool held) {
    // A single miss is taken for an interruption of the host and does not lengthen later gates.
    misses_ = held ? 0 : misses_ + 1;
    if (misses_ > 1) gate_us_ = std::min(2 * gate_us_, kLongestGateUs);
  }

  std::function<void()> body_;
  Count device_allocations_;  // may be empty
  std::unique_ptr<syncfree_probe, Destroy> probe_;
  double gate_us_ = kGateMarginUs;
  int misses_ = 0;
};

// Always times a single call, also back to back: the mean of many is faster even without a pause.
class CpuGapProbe final : public GapProbe {
 public:
  explicit CpuGapProbe(std::function<void()> body) : body_(std::move(body)) {}

  Status prepare(std::string&) override {
    body_();
    return {};
  }

  Status sample(bool, double pause, GapSample& taken) override {
    sleep_for(pause);
    const double begin = now_us();
    body_();
    taken.us = taken.host_us = now_us() - begin;
    return {};
  }

 private:
  std::function<void()> body_;
};

}  // namespace detail
}  // namespace syncfree
