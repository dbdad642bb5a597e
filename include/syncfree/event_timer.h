// Times regions of streams with CUDA events, and never waits for them.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "syncfree/duration.h"
#include "syncfree/launch.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

// The regions of one name that have ended. Times are microseconds, NaN where nothing is known.
struct RegionSummary {
  std::string name;
  std::int64_t count = 0;
  double total_us = 0;  // GPU time of all of them
  double least_us = 0;
  double median_us = 0;       // of the last samples, like all that follows
  double host_median_us = 0;  // time in which the host queued the region's work
  double gap_median_us = 0;   // since the last region's end on the stream: idle, or untimed
  // Of regions in which the GPU waited for the host's launches, without replays of graphs; 0 if
  // these are more than the others.
  double launch_bound_share = 0;
  bool host_clock = false;  // no GPU: times are the host's

  // What the region's time is made of.
  std::string verdict() const {
    if (std::isnan(median_us)) return "no region has passed yet";
    const std::string time = detail::duration(median_us);
    if (host_clock) return "host time: " + time + " by the clock, without a GPU";
    if (launch_bound_share > 0.5)
      return "launch-bound: host enqueue " + detail::duration(host_median_us) + " for " + time +
             " between the events";
    if (gap_median_us > 0.5 * median_us)
      return "GPU-bound: " + time + "; before it the GPU is idle or untimed for " +
             detail::duration(gap_median_us);
    return "GPU-bound: " + time;
  }
};

// A fixed number of regions may be in flight; beyond it the oldest is dropped and counted. Several
// threads may use one timer. Regions must have ended before the timer is destroyed.
//
//   Status status;
//   EventTimer timer(Device::Type::kCuda, status);
//   {
//     const auto region = timer.region("forward", stream);
//     ... queue work on `stream` ...
//   }
//   for (const RegionSummary& each : timer.summary()) ...
class EventTimer {
 public:
  // Lasts from its construction to `end` or its destruction, on the stream on which it began.
  class [[nodiscard]] Region {
   public:
    Region(Region&& other) noexcept
        : timer_(other.timer_), region_(std::exchange(other.region_, nullptr)) {}
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    // A region whose end fails is counted in `untimed`.
    ~Region() { (void)end(); }

    Status end() {
      return detail::status_of(syncfree_timer_end(timer_, std::exchange(region_, nullptr)));
    }

   private:
    friend class EventTimer;
    Region(syncfree_timer* timer, syncfree_region* region) : timer_(timer), region_(region) {}

    syncfree_timer* timer_;
    syncfree_region* region_;  // null if it cannot be timed
  };

  struct Options {
    std::int64_t regions_in_flight = 1024;
    std::int64_t history = 1024;  // samples kept for each name
  };

  // Times by CUDA events, or by the host's clock for the CPU. Without a driver `status` is
  // kCudaError, and the timer times nothing.
  EventTimer(Device::Type device, Status& status) : EventTimer(device, Options{}, status) {}
  EventTimer(Device::Type device, const Options& options, Status& status) : device_type_(device) {
    const syncfree_timer_options all{options.regions_in_flight, options.history,
                                     static_cast<std::int32_t>(device)};
    syncfree_timer* timer = nullptr;
    status = detail::status_of(syncfree_timer_create(&all, &timer));
    timer_.reset(timer);
  }

  Device::Type device_type() const { return device_type_; }

  // A region that cannot be timed (for one, while another stream is captured) is counted.
  Region region(const char* name, Stream stream = nullptr, int device = 0) {
    syncfree_region* region = nullptr;
    (void)syncfree_timer_begin(timer_.get(), name, device, stream, &region);
    return {timer_.get(), region};
  }

  // One per name, in the order of their first use. Never waits: what is in flight is left out.
  std::vector<RegionSummary> summary() {
    (void)syncfree_timer_poll(timer_.get());
    std::vector<RegionSummary> all;
    syncfree_region_summary each{};
    while (syncfree_timer_summary(timer_.get(), static_cast<std::int64_t>(all.size()), &each) ==
               SYNCFREE_OK &&
           each.name != nullptr)
      all.push_back({each.name, each.count, each.total_us, each.least_us, each.median_us,
                     each.host_median_us, each.gap_median_us, each.launch_bound_share,
                     each.host_clock != 0});
    return all;
  }

  // Waits until all that was recorded has passed; for the end of a program.
  Status wait() { return detail::status_of(syncfree_timer_wait(timer_.get())); }

  // Regions without a sample: dropped, skipped or lost.
  std::int64_t untimed() const { return syncfree_timer_untimed(timer_.get()); }

 private:
  struct Destroy {
    void operator()(syncfree_timer* timer) const { syncfree_timer_destroy(timer); }
  };

  Device::Type device_type_;
  std::unique_ptr<syncfree_timer, Destroy> timer_;
};

}  // namespace syncfree
