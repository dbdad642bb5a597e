// The bracket: the time that two events take by themselves, part of every time between two events.
//
// Recording an event makes the GPU's front end wait for the work before it and write a time. On an
// H200 two events in a row are 2.9 us apart, as long as a small kernel, and a kernel between them
// adds to that. So the bracket is measured once for each device, and subtracted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

#include "runtime/cuda_driver.h"

namespace syncfree::runtime::cuda {

class Device;
class DeviceCode;

class EventBracket {
 public:
  // Records pairs of events with nothing between them, on a stream that nothing else uses. Does not
  // wait: the times come later.
  explicit EventBracket(Device& device);

  // Whether the bracket is final; until then asks the driver, in the current context. Never waits.
  bool is_settled();
  // The least of the pairs, so that no time is reduced by more than events have been seen to take.
  // NaN until it is settled, and forever if it cannot be measured.
  double microseconds() const { return microseconds_; }
  // The event that passes last; null if there is nothing to wait for.
  Event last() const { return is_pending_ ? pairs_.back().end : nullptr; }

 private:
  struct Pair {
    Event start = nullptr;
    Event end = nullptr;
  };

  bool record(const DeviceCode& code, std::uint64_t hold);

  const Driver& driver_;
  std::mutex mutex_;
  std::atomic<bool> is_pending_ = false;
  std::atomic<double> microseconds_ = std::numeric_limits<double>::quiet_NaN();
  Stream stream_ = nullptr;
  std::array<Pair, 8> pairs_;
};

}  // namespace syncfree::runtime::cuda
