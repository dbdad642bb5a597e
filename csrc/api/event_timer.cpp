// syncfree_timer_*: the runtime's region timer (runtime/region_timer.h), guarded by a mutex where
// Python has the GIL.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "api/arguments.h"
#include "api/driver_failure.h"
#include "runtime/own_call.h"
#include "runtime/region_timer.h"

using namespace syncfree;
using namespace syncfree::api;
using runtime::RegionHistory;
using runtime::RegionSample;
using runtime::RegionSlot;
using runtime::RegionTimer;

struct syncfree_timer {
  explicit syncfree_timer(const RegionTimer::Options& options)
      : has_gpu(options.has_gpu), timer(options) {}

  const bool has_gpu;
  std::mutex mutex;
  RegionTimer timer;
  std::int64_t failed = 0;  // regions that could not begin
};

namespace {

// If a region's launches took more than this share of its GPU time, the GPU waited for the host.
constexpr double kLaunchBound = 0.8;

RegionSlot* slot_of(syncfree_region* region) {
  return reinterpret_cast<RegionSlot*>(region);
}

// Over the known values; NaN if there are none.
template <class Of>
double median(const std::vector<RegionSample>& samples, const Of& of) {
  std::vector<double> known;
  for (const RegionSample& sample : samples)
    if (const double x = of(sample); !std::isnan(x)) known.push_back(x);
  if (known.empty()) return runtime::kUnknown;
  std::sort(known.begin(), known.end());
  const std::size_t half = known.size() / 2;
  return known.size() % 2 ? known[half] : 0.5 * (known[half - 1] + known[half]);
}

// The share of samples in which the GPU waited for the host's launches. If the GPU had not even
// begun the region when all launches were queued, it held up the host instead. Only some samples
// probe for this; the answer holds until the next probe. Replays of graphs, which have no launches,
// do not count; if they are more than the other samples, the share is 0.
double launch_bound_share(std::vector<RegionSample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  std::size_t bound = 0, replays = 0;
  bool queued = false;
  for (const RegionSample& sample : samples) {
    replays += (sample.flags & RegionSample::kCaptured) != 0;
    if (sample.flags & RegionSample::kProbed) queued = (sample.flags & RegionSample::kQueued) != 0;
    const bool follows = !(sample.flags & RegionSample::kHostClock) &&
                         sample.host_enqueue > kLaunchBound * sample.gpu;
    bound += follows && !queued;
  }
  const std::size_t others = samples.size() - replays;
  const bool is_known = others > 0 && replays <= others;
  return is_known ? static_cast<double>(bound) / static_cast<double>(others) : 0.0;
}

}  // namespace

syncfree_status_code syncfree_timer_create(const syncfree_timer_options* options,
                                           syncfree_timer** timer) {
  return guarded_by_driver([&] {
    required("timer", timer);
    *timer = nullptr;
    const syncfree_timer_options& given = required("options", options);
    if (given.regions_in_flight < 1 || given.history < 1)
      fail(SYNCFREE_INVALID_ARGUMENT,
           "Expected `regions_in_flight` and `history` to be at least 1, but got ",
           given.regions_in_flight, " and ", given.history, ".");
    check_choice("device_type", given.device_type, SYNCFREE_CUDA);
    const bool has_gpu = given.device_type == SYNCFREE_CUDA;
    if (has_gpu) runtime::cuda::driver();  // throws if there is no driver
    *timer = new syncfree_timer({static_cast<std::size_t>(given.regions_in_flight),
                                 static_cast<std::size_t>(given.history), 0, has_gpu,
                                 "`regions_in_flight`"});
  });
}

void syncfree_timer_destroy(syncfree_timer* timer) {
  delete timer;
}

syncfree_status_code syncfree_timer_begin(syncfree_timer* timer, const char* name,
                                          int32_t device_index, syncfree_stream stream,
                                          syncfree_region** region) {
  return guarded_by_driver([&] {
    required("timer", timer);
    required("name", name);
    required("region", region);
    *region = nullptr;
    std::unique_lock lock(timer->mutex);
    const runtime::OwnCall own;
    std::optional<runtime::cuda::InContext> here;
    RegionSlot* slot = nullptr;
    try {
      if (timer->has_gpu) check_device_index(device_index);
      RegionHistory& history = timer->timer.name(name, runtime::RegionKind::kCompute);
      runtime::DeviceRegions* device = nullptr;
      if (timer->has_gpu && !RegionTimer::in_forked_child()) {
        device = &timer->timer.on(device_index);
        here.emplace(device->device->driver(), device->device->context());
      }
      slot =
          timer->timer.open(history, device, reinterpret_cast<runtime::cuda::Stream>(stream), -1);
      if (slot == nullptr) return;  // cannot be timed; `open` has counted it
      lock.unlock();
      timer->timer.record_start(*slot);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      ++timer->failed;
      if (slot != nullptr) timer->timer.abandon(*slot);
      throw;
    }
    *region = reinterpret_cast<syncfree_region*>(slot);
  });
}

syncfree_status_code syncfree_timer_end(syncfree_timer* timer, syncfree_region* region) {
  return guarded_by_driver([&] {
    required("timer", timer);
    if (region == nullptr) return;
    RegionSlot& slot = *slot_of(region);
    try {
      timer->timer.record_end(slot);
    } catch (const std::exception& error) {
      const std::lock_guard lock(timer->mutex);
      timer->timer.lose(slot, error.what());
      throw;
    }
    const std::lock_guard lock(timer->mutex);
    timer->timer.close(slot);
  });
}

syncfree_status_code syncfree_timer_poll(syncfree_timer* timer) {
  return guarded_by_driver([&] {
    required("timer", timer);
    const std::lock_guard lock(timer->mutex);
    timer->timer.poll();
  });
}

syncfree_status_code syncfree_timer_wait(syncfree_timer* timer) {
  return guarded_by_driver([&] {
    required("timer", timer);
    std::unique_lock lock(timer->mutex);
    const std::vector<runtime::RegionEnd> ends = timer->timer.last_ends();
    lock.unlock();
    timer->timer.wait(ends);
    lock.lock();
    timer->timer.poll();
  });
}

syncfree_status_code syncfree_timer_summary(syncfree_timer* timer, int64_t index,
                                            syncfree_region_summary* summary) {
  return guarded_by_driver([&] {
    required("timer", timer);
    required("summary", summary);
    const std::lock_guard lock(timer->mutex);
    const auto& histories = timer->timer.histories();
    *summary = {};
    if (index < 0 || index >= static_cast<std::int64_t>(histories.size())) return;
    const RegionHistory& history = histories[static_cast<std::size_t>(index)];
    const std::vector<RegionSample>& kept = history.kept();
    summary->name = history.name().c_str();
    summary->count = static_cast<std::int64_t>(history.count());
    summary->total_us = history.total();
    summary->least_us = kept.empty() ? runtime::kUnknown : history.least();
    summary->median_us = median(kept, [](const auto& s) { return s.gpu; });
    summary->host_median_us = median(kept, [](const auto& s) { return s.host_enqueue; });
    summary->gap_median_us = median(kept, [](const auto& s) { return s.gpu_gap; });
    summary->launch_bound_share = launch_bound_share(kept);
    summary->host_clock = !timer->has_gpu;
  });
}

int64_t syncfree_timer_untimed(syncfree_timer* timer) {
  if (timer == nullptr) return 0;
  const std::lock_guard lock(timer->mutex);
  return timer->failed + static_cast<std::int64_t>(timer->timer.dropped() + timer->timer.skipped() +
                                                   timer->timer.lost());
}
