#include "runtime/region_timer.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/host_clock.h"
#include "runtime/own_call.h"

namespace syncfree::runtime {
namespace {

// While the GPU is behind, looks come less often: each asks the driver, which takes 0.4 us.
constexpr std::uint64_t kMostBetweenLooks = 64;
constexpr std::size_t kLeastPending = 32;  // fewer are left until `poll` is called

// Which regions of a name probe whether the GPU had begun: the first ones, and then some.
constexpr std::uint64_t kFirstProbes = 4;
constexpr std::uint64_t kRegionsBetweenProbes = 16;

std::atomic<bool> forked{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  });
}

cuda::Stream stream_of(const RegionSlot& slot) {
  return reinterpret_cast<cuda::Stream>(slot.sample.stream);
}

}  // namespace

bool RegionTimer::in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

RegionTimer::RegionTimer(const Options& options) : options_(options) {
  watch_forks();
}

RegionTimer::~RegionTimer() {
  for (auto& device : devices_) {
    if (device == nullptr) continue;
    for (RegionSlot& slot : device->slots) {
      device->device->give_back(slot.start);
      device->device->give_back(slot.end);
      give_back_stamps(slot);
    }
    for (StreamQueue& queue : device->queues) device->device->give_back(queue.anchor);
    device->device->give_back(device->clock);
    device->device->give_back(device->next_clock);
    // Not the events of captured regions: graphs go on recording them.
  }
}

RegionHistory& RegionTimer::name(const std::string& name, RegionKind kind) {
  for (RegionHistory& history : histories_)
    if (history.kind() == kind && history.name() == name) return history;
  if (histories_.size() >= kMostNames)
    throw TimerLimit("a timer keeps samples of " + std::to_string(kMostNames) +
                     " names at most: name what a region is, not which one it is");
  return histories_.emplace_back(name, kind, options_.history);
}

void RegionTimer::prepare(int device) {
  if (options_.has_gpu) on(device);
}

DeviceRegions& RegionTimer::on(int ordinal) {
  const auto index = static_cast<std::size_t>(ordinal);
  if (index < devices_.size() && devices_[index] != nullptr) [[likely]]
    return *devices_[index];
  const OwnCall own;
  auto made = std::make_unique<DeviceRegions>();
  cuda::Device& device = cuda::Device::primary(ordinal);
  const cuda::Driver& driver = device.driver();
  made->device = &device;
  made->ordinal = ordinal;
  if (options_.stamp_every != 0) {
    try {
      device.code();
    } catch (const cuda::Error& error) {
      throw cuda::Error(std::string(error.what()) +
                        "; the kernels of clock stamps do not run, stamp_every=0 does without");
    }
  }
  {
    const cuda::DuringCaptures allowed(driver);
    const cuda::InContext here(driver, device.context());
    made->clock = device.take_event();
    driver.check(driver.event_record(made->clock, device.idle_stream()), "cuEventRecord");
    made->clock_at = host_microseconds();
  }
  device.bracket();
  made->slots.resize(options_.capacity);
  for (RegionSlot& slot : made->slots) {
    slot.start = device.take_event();
    slot.end = device.take_event();
    slot.device = made.get();
    slot.next = std::exchange(made->free, &slot);
  }
  if (index >= devices_.size()) devices_.resize(index + 1);
  devices_[index] = std::move(made);
  return *devices_[index];
}

ThreadRegions& RegionTimer::this_thread() {
  const auto id = static_cast<std::uint64_t>(pthread_self());  // as threading.get_ident
  if (latest_thread_ == nullptr || latest_thread_->id != id) [[unlikely]] {
    latest_thread_ = &threads_[id];
    latest_thread_->id = id;
  }
  return *latest_thread_;
}

RegionSlot* RegionTimer::open(RegionHistory& history, DeviceRegions* device, cuda::Stream stream,
                              std::int64_t bytes) {
  RegionSlot* slot = nullptr;
  bool captured = false;
  if (!options_.has_gpu) {
    slot = &take_host_slot();
  } else if (device != nullptr) {
    const cuda::Driver& driver = device->device->driver();
    int status = cuda::kCaptureNone;
    const cuda::Result result = driver.stream_is_capturing(stream, &status);
    // A record on the legacy stream would invalidate the capture of another one.
    if (result != cuda::kCaptureImplicit) {
      driver.check(result, "cuStreamIsCapturing");
      captured = status != cuda::kCaptureNone;
      slot = captured ? take_captured(*device) : &take(*device);
    }
  }
  if (slot == nullptr) {
    ++skipped_;
    return nullptr;
  }
  ThreadRegions& thread = this_thread();
  RegionSample& sample = slot->sample = RegionSample{};
  slot->history = &history;
  slot->is_open = true;
  slot->thread = &thread;
  slot->outer = std::exchange(thread.innermost, slot);
  sample.sequence = ++sequence_;
  sample.thread = thread.id;
  sample.stream = reinterpret_cast<std::uint64_t>(stream);
  sample.bytes = bytes;
  sample.device = device != nullptr ? device->ordinal : -1;
  if (slot->outer != nullptr) {
    sample.parent = slot->outer->sample.sequence;
    sample.depth = slot->outer->sample.depth + 1;
  }
  const std::uint64_t opening = history.next_opening();
  if (opening == 0) sample.flags |= RegionSample::kFirst;
  if (captured) sample.flags |= RegionSample::kCaptured;
  if (!options_.has_gpu) sample.flags |= RegionSample::kHostClock;
  slot->probe = slot->device != nullptr && !captured &&
                (opening < kFirstProbes || opening % kRegionsBetweenProbes == 0);
  slot->serials[0] = slot->serials[1] = 0;
  slot->stamps_sent = 0;
  if (slot->device != nullptr && !captured && options_.stamp_every != 0 &&
      opening % options_.stamp_every == 1 % options_.stamp_every) {
    try {
      for (cuda::StampPlace& place : slot->stamps) place = slot->device->device->take_stamp();
    } catch (...) {
      abandon(*slot);
      throw;
    }
    for (std::uint32_t& serial : slot->serials) serial = cuda::Device::next_serial();
  }
  return slot;
}

void RegionTimer::record_start(RegionSlot& slot) {
  if (slot.device != nullptr) {
    cuda::Device& device = *slot.device->device;
    const cuda::Driver& driver = device.driver();
    const cuda::Stream stream = stream_of(slot);
    if (slot.serials[0] != 0) {
      device.code().stamp(stream, slot.stamps[0].device, slot.serials[0]);
      slot.stamps_sent = 1;
    }
    driver.check(slot.sample.flags & RegionSample::kCaptured
                     ? driver.event_record_with_flags(slot.start, stream, cuda::kRecordExternal)
                     : driver.event_record(slot.start, stream),
                 "cuEventRecord");
  }
  slot.sample.host_start = host_microseconds();
}

void RegionTimer::record_end(RegionSlot& slot) {
  slot.sample.host_enqueue = host_microseconds() - slot.sample.host_start;
  if (slot.device == nullptr) return;
  const OwnCall own;
  cuda::Device& device = *slot.device->device;
  const cuda::Driver& driver = device.driver();
  const cuda::InContext here(driver, device.context());
  const cuda::Stream stream = stream_of(slot);
  if (slot.probe) {
    const cuda::DuringCaptures allowed(driver);
    const bool queued = driver.event_query(slot.start) == cuda::kNotReady;
    slot.sample.flags |= RegionSample::kProbed | (queued ? RegionSample::kQueued : 0);
  }
  driver.check(slot.sample.flags & RegionSample::kCaptured
                   ? driver.event_record_with_flags(slot.end, stream, cuda::kRecordExternal)
                   : driver.event_record(slot.end, stream),
               "cuEventRecord");
  if (slot.serials[1] != 0) {
    device.code().stamp(stream, slot.stamps[1].device, slot.serials[1]);
    slot.stamps_sent = 2;
  }
}

void RegionTimer::close(RegionSlot& slot) {
  RegionSample& sample = slot.sample;
  sample.host_gap = slot.thread->ends.gap(sample.depth, sample.parent, sample.host_start,
                                          sample.host_start + sample.host_enqueue);
  leave_thread(slot);
  if (slot.device == nullptr) {
    sample.gpu_start = sample.host_start;
    sample.gpu = sample.host_enqueue;
    sample.gpu_gap = sample.host_gap;
    add(*slot.history, sample);
    release(slot);
    return;
  }
  if (sample.flags & RegionSample::kCaptured) {
    // The host times are those of the capture, not of a replay.
    sample.host_start = sample.host_enqueue = sample.host_gap = kUnknown;
    return;
  }
  DeviceRegions& device = *slot.device;
  StreamQueue& queue = queue_of(device, stream_of(slot));
  slot.next = nullptr;
  (queue.last == nullptr ? queue.first : queue.last->next) = &slot;
  queue.last = &slot;
  ++device.pending;
  if (--device.until_look != 0) return;
  device.until_look = device.between_looks;  // also if the look throws
  if (device.pending < kLeastPending) return;
  device.between_looks =
      look(device) ? kRegionsBetweenLooks : std::min(2 * device.between_looks, kMostBetweenLooks);
  device.until_look = device.between_looks;
}

void RegionTimer::abandon(RegionSlot& slot) {
  leave_thread(slot);
  if (slot.device != nullptr && slot.sample.flags & RegionSample::kCaptured)
    slot.history = nullptr;  // not reused: a graph may still record its events
  else
    release(slot);
}

void RegionTimer::skip(RegionSlot& slot) {
  abandon(slot);
  ++skipped_;
}

void RegionTimer::lose(RegionSlot& slot, const std::string& problem) {
  abandon(slot);
  ++lost_;
  problem_ = problem;
}

void RegionTimer::leave_thread(RegionSlot& slot) {
  slot.is_open = false;
  // Not always the innermost one: coroutines take turns on a thread.
  for (RegionSlot** link = &slot.thread->innermost; *link != nullptr; link = &(*link)->outer) {
    if (*link == &slot) {
      *link = slot.outer;
      break;
    }
  }
}

std::size_t RegionTimer::poll() {
  std::size_t done = 0;
  if (in_forked_child()) return done;
  for (auto& device : devices_) {
    if (device == nullptr) continue;
    done += advance(*device, options_.capacity);
    if (!device->captured.empty()) done += read_captured(*device);
    move_clock(*device);
  }
  return done;
}

void RegionTimer::clear() {
  for (RegionHistory& history : histories_) history.clear();
  cleared_before_ = sequence_;
  dropped_ = skipped_ = lost_ = 0;
  problem_.clear();
}

}  // namespace syncfree::runtime
