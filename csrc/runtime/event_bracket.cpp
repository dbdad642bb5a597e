#include "runtime/event_bracket.h"

#include <algorithm>

#include "runtime/cuda_device.h"

namespace syncfree::runtime::cuda {
namespace {

// Nanoseconds for which a spinning kernel holds the stream: what the host queues meanwhile is there
// before the GPU gets to it. A host that takes longer tries again with the next one.
constexpr std::uint64_t kHolds[] = {250'000, 1'000'000, 4'000'000};
constexpr std::uint64_t kWork = 1'000;  // as before any region that is not the stream's first

}  // namespace

EventBracket::EventBracket(Device& device) : driver_(device.driver()) {
  try {
    const DeviceCode& code = device.code();
    const DuringCaptures allowed(driver_);
    const InContext here(driver_, device.context());
    driver_.check(driver_.stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate");
    for (Pair& pair : pairs_) pair = {device.new_event(), device.new_event()};
    for (const std::uint64_t hold : kHolds) {
      is_pending_ = record(code, hold);
      if (is_pending_) return;
    }
  } catch (const Error&) {
    // The timer does without the bracket, and says so.
  }
}

// Whether the stream was held until all pairs were queued, so that no time contains the host's.
bool EventBracket::record(const DeviceCode& code, std::uint64_t hold) {
  for (const Pair& pair : pairs_) {
    code.spin(stream_, &pair == pairs_.data() ? hold : kWork);
    driver_.check(driver_.event_record(pair.start, stream_), "cuEventRecord");
    driver_.check(driver_.event_record(pair.end, stream_), "cuEventRecord");
  }
  return driver_.event_query(pairs_.front().start) == kNotReady;
}

bool EventBracket::is_settled() {
  if (!is_pending_) return true;
  const std::lock_guard lock(mutex_);
  if (!is_pending_) return true;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = pairs_.size(); i-- > 0;) {  // last first: once it has passed, all have
    float milliseconds = 0;
    const Result result = driver_.elapsed(&milliseconds, pairs_[i].start, pairs_[i].end);
    if (result == kNotReady) return false;
    if (result != kSuccess) {
      is_pending_ = false;
      return true;
    }
    least = std::min(least, milliseconds);
  }
  microseconds_ = least * 1e3;
  is_pending_ = false;
  return true;
}

}  // namespace syncfree::runtime::cuda
