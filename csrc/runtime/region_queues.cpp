// Slots and queues of a timer: what comes in, what becomes a sample, what is dropped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "runtime/host_clock.h"
#include "runtime/own_call.h"
#include "runtime/region_timer.h"

namespace syncfree::runtime {
namespace {

constexpr std::size_t kMostQueues = 64;     // beyond this, empty queues are reused for new streams
constexpr float kClockMilliseconds = 1e4f;  // up to here a float resolves 1 us
constexpr double kLongestStamp = 1e5;       // microseconds

bool has_passed(cuda::Device& device, cuda::Event event) {
  const OwnCall own;
  const cuda::DuringCaptures allowed(device.driver());
  const cuda::InContext here(device.driver(), device.context());
  return device.driver().event_query(event) != cuda::kNotReady;
}

}  // namespace

double LastEnds::gap(std::uint32_t depth, std::uint64_t parent, double start, double end) {
  if (depth >= kDepths) return kUnknown;
  End& last = ends[depth];
  const double gap = last.parent == parent ? start - last.at : kUnknown;
  last = {end, parent};
  return gap < 0 ? 0 : gap;  // siblings of two threads may overlap on one stream
}

StreamQueue& RegionTimer::queue_of(DeviceRegions& device, cuda::Stream stream) {
  if (device.latest != nullptr && device.latest->stream == stream) [[likely]]
    return *device.latest;
  StreamQueue* empty = nullptr;
  for (StreamQueue& queue : device.queues) {
    if (queue.stream == stream) return *(device.latest = &queue);
    if (queue.first == nullptr) empty = &queue;
  }
  if (empty == nullptr || device.queues.size() < kMostQueues) {
    empty = &device.queues.emplace_back();
  } else {
    empty->ends = {};
  }
  empty->stream = stream;
  return *(device.latest = empty);
}

RegionSlot& RegionTimer::take(DeviceRegions& device) {
  if (device.free == nullptr) [[unlikely]] {
    if (advance(device, kMostAtOnce) == 0 && !drop_oldest(device))
      throw TimerLimit("all " + std::to_string(options_.capacity) +
                       " slots of the timer are open regions: make it with a larger " +
                       options_.capacity_name);
  }
  RegionSlot& slot = *device.free;
  device.free = slot.next;
  return slot;
}

RegionSlot* RegionTimer::take_captured(DeviceRegions& device) {
  if (device.captured.size() >= options_.capacity) return nullptr;
  RegionSlot& slot = device.captured.emplace_back();
  slot.device = &device;
  // New events: a capture itself records nothing, so an earlier owner's record would be taken for
  // that of a replay.
  slot.start = device.device->new_event();
  slot.end = device.device->new_event();
  return &slot;
}

RegionSlot& RegionTimer::take_host_slot() {
  if (free_host_slot_ == nullptr) return host_slots_.emplace_back();
  RegionSlot& slot = *free_host_slot_;
  free_host_slot_ = slot.next;
  return slot;
}

void RegionTimer::release(RegionSlot& slot) {
  if (slot.device == nullptr) {
    slot.next = std::exchange(free_host_slot_, &slot);
    return;
  }
  give_back_stamps(slot);
  slot.next = std::exchange(slot.device->free, &slot);
}

void RegionTimer::give_back_stamps(RegionSlot& slot) {
  for (int i = 0; i < 2; ++i)
    slot.device->device->give_back(std::exchange(slot.stamps[i], {}),
                                   i < slot.stamps_sent ? slot.serials[i] : 0);
}

RegionSlot& RegionTimer::pop(DeviceRegions& device, StreamQueue& queue) {
  RegionSlot& slot = *queue.first;
  queue.first = slot.next;
  if (queue.first == nullptr) queue.last = nullptr;
  if (queue.mark == &slot) queue.mark = nullptr;
  --device.pending;
  return slot;
}

bool RegionTimer::drop_oldest(DeviceRegions& device) {
  StreamQueue* oldest = nullptr;
  for (StreamQueue& queue : device.queues) {
    if (queue.first != nullptr &&
        (oldest == nullptr || queue.first->sample.sequence < oldest->first->sample.sequence))
      oldest = &queue;
  }
  if (oldest == nullptr) return false;
  release(pop(device, *oldest));
  ++dropped_;
  return true;
}

// The bracket was recorded before any region. Called in the context of the device.
bool RegionTimer::knows_bracket(DeviceRegions& device) {
  if (device.bracket_is_settled) [[likely]]
    return true;
  cuda::EventBracket& bracket = device.device->bracket();
  device.bracket_is_settled = bracket.is_settled();
  device.bracket = bracket.microseconds();
  return device.bracket_is_settled;
}

// Turns the oldest region of a queue into a sample, if its end has passed.
bool RegionTimer::advance(DeviceRegions& device, StreamQueue& queue) {
  if (queue.first == nullptr) return false;
  RegionSlot& slot = *queue.first;
  const cuda::Driver& driver = device.device->driver();
  float to_end = 0, inside = 0;
  const cuda::Event from = queue.anchor == nullptr ? device.clock : queue.anchor;
  cuda::Result result = driver.elapsed(&to_end, from, slot.end);
  if (result == cuda::kSuccess) result = driver.elapsed(&inside, slot.start, slot.end);
  if (result == cuda::kNotReady) return false;
  if (result != cuda::kSuccess) {
    release(pop(device, queue));
    ++lost_;
    problem_ = driver.describe(result, "cuEventElapsedTime");
    return true;
  }
  const bool is_stamped = slot.serials[0] != 0;
  for (int i : {0, 1})  // the second one is behind the end
    if (is_stamped && !slot.stamps[i].host->has_arrived(slot.serials[i])) return false;

  RegionSample& sample = slot.sample;
  const double end = (queue.anchor == nullptr ? device.clock_at : queue.anchor_at) + to_end * 1e3;
  // May throw; then the region stays as it is.
  const cuda::Event anchor = queue.anchor == nullptr ? device.device->take_event() : queue.anchor;
  sample.gpu = inside * 1e3;
  sample.gpu_gap = queue.ends.gap(sample.depth, sample.parent, end - sample.gpu, end);
  // Both are times between two events, and contain the bracket.
  for (double* time : {&sample.gpu, &sample.gpu_gap})
    if (!std::isnan(*time) && !std::isnan(device.bracket))
      *time = std::max(0.0, *time - device.bracket);
  sample.gpu_start = end - sample.gpu;
  if (is_stamped) sample.mhz = cuda::effective_mhz(*slot.stamps[0].host, *slot.stamps[1].host);
  queue.anchor = std::exchange(slot.end, anchor);
  queue.anchor_at = end;
  add(*slot.history, sample);
  release(pop(device, queue));
  return true;
}

std::size_t RegionTimer::advance(DeviceRegions& device, std::size_t most) {
  if (device.pending == 0) return 0;
  const OwnCall own;
  const cuda::Driver& driver = device.device->driver();
  const cuda::DuringCaptures allowed(driver);
  const cuda::InContext here(driver, device.device->context());
  std::size_t done = 0;
  if (!knows_bracket(device)) return done;
  for (StreamQueue& queue : device.queues)
    while (done < most && advance(device, queue)) ++done;
  return done;
}

// A look between regions. The mark of a queue is the region that was its newest at the previous
// look. One query tells whether it has ended, and with it all before it; these are turned into
// samples. Returns false if marks were pending and nothing could be taken.
bool RegionTimer::look(DeviceRegions& device) {
  const OwnCall own;
  const cuda::Driver& driver = device.device->driver();
  const cuda::DuringCaptures allowed(driver);
  const cuda::InContext here(driver, device.device->context());
  std::size_t done = 0;
  if (!knows_bracket(device)) return false;
  bool was_behind = false;
  for (StreamQueue& queue : device.queues) {
    if (queue.mark != nullptr && driver.event_query(queue.mark->end) == cuda::kNotReady) {
      was_behind = true;
      continue;
    }
    while (queue.mark != nullptr && done < kMostAtOnce && advance(device, queue)) ++done;
    if (queue.mark == nullptr) queue.mark = queue.last;
  }
  return done != 0 || !was_behind;
}

std::size_t RegionTimer::read_captured(DeviceRegions& device) {
  const OwnCall own;
  const cuda::Driver& driver = device.device->driver();
  const cuda::DuringCaptures allowed(driver);
  const cuda::InContext here(driver, device.device->context());
  std::size_t done = 0;
  for (RegionSlot& slot : device.captured) {
    if (slot.is_open || slot.history == nullptr) continue;
    float to_end = 0, inside = 0;
    // Fails for a graph that has not been replayed yet, or that is being replayed now.
    if (driver.elapsed(&to_end, device.clock, slot.end) != cuda::kSuccess ||
        driver.elapsed(&inside, slot.start, slot.end) != cuda::kSuccess || inside < 0)
      continue;
    device.clock_is_old |= to_end > kClockMilliseconds;
    if (to_end == slot.last_reading) continue;  // the replay that is known
    slot.last_reading = to_end;
    RegionSample sample = slot.sample;
    sample.gpu = inside * 1e3;  // with the bracket, which is not measured for events of a graph
    sample.gpu_start = device.clock_at + to_end * 1e3 - sample.gpu;
    add(*slot.history, sample);
    slot.sample.flags &= ~RegionSample::kFirst;
    ++done;
  }
  return done;
}

// Replaces the clock, to keep the times from it to captured regions short.
void RegionTimer::move_clock(DeviceRegions& device) {
  // Pending regions may lie before the new clock.
  if (!device.clock_is_old || device.pending != 0) return;
  const OwnCall own;
  const cuda::Driver& driver = device.device->driver();
  const cuda::DuringCaptures allowed(driver);
  const cuda::InContext here(driver, device.device->context());
  float passed = 0;
  if (device.next_clock == nullptr) {
    const cuda::Event next = device.device->take_event();
    driver.check(driver.event_record(next, device.device->idle_stream()), "cuEventRecord");
    device.next_clock = next;
  } else if (driver.elapsed(&passed, device.clock, device.next_clock) == cuda::kSuccess) {
    device.clock_at += passed * 1e3;
    device.clock_is_old = false;
    for (RegionSlot& slot : device.captured) {  // last readings must be relative to the new clock
      float before = 0, after = std::numeric_limits<float>::quiet_NaN();
      if (driver.elapsed(&before, device.clock, slot.end) == cuda::kSuccess &&
          before == slot.last_reading)
        driver.elapsed(&after, device.next_clock, slot.end);
      slot.last_reading = after;
    }
    device.device->give_back(
        std::exchange(device.clock, std::exchange(device.next_clock, nullptr)));
  }
}

std::vector<RegionEnd> RegionTimer::last_ends() const {
  std::vector<RegionEnd> ends;
  for (const auto& device : devices_) {
    if (device == nullptr) continue;
    if (device->pending != 0) {
      const cuda::Event bracket = device->device->bracket().last();
      if (bracket != nullptr) ends.push_back({device->device, bracket, nullptr, 0});
      // Times are measured from the clock, which is recorded on a stream of its own.
      if (!has_passed(*device->device, device->clock))
        ends.push_back({device->device, device->clock, nullptr, 0});
    }
    for (const StreamQueue& queue : device->queues) {
      const RegionSlot* last = queue.last;
      if (last != nullptr)
        ends.push_back({device->device, last->end, last->stamps[1].host, last->serials[1]});
    }
  }
  return ends;
}

void RegionTimer::wait(const std::vector<RegionEnd>& ends) const {
  for (const RegionEnd& end : ends) {
    const cuda::Driver& driver = end.device->driver();
    const cuda::InContext here(driver, end.device->context());
    driver.check(driver.event_synchronize(end.event), "cuEventSynchronize");
    // The stamp takes microseconds more. The wait is bounded: another thread may have turned the
    // region into a sample, after which the place may serve another stamp.
    const double until = host_microseconds() + kLongestStamp;
    while (end.serial != 0 && !end.stamp->has_arrived(end.serial) && host_microseconds() < until)
      std::this_thread::yield();
  }
}

std::size_t RegionTimer::pending() const {
  std::size_t sum = 0;
  for (const auto& device : devices_) sum += device == nullptr ? 0 : device->pending;
  return sum;
}

std::vector<std::pair<int, double>> RegionTimer::brackets() const {
  std::vector<std::pair<int, double>> known;
  for (const auto& device : devices_)
    if (device != nullptr && device->bracket_is_settled)
      known.emplace_back(device->ordinal, device->bracket);
  return known;
}

void RegionTimer::add(RegionHistory& history, const RegionSample& sample) {
  if (sample.sequence > cleared_before_ || sample.flags & RegionSample::kCaptured)
    history.add(sample);
}

}  // namespace syncfree::runtime
