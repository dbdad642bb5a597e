// What is kept for each CUDA context as long as the process lives: events, stamps and kernels.
//
// Creating and destroying events takes locks of the driver, and freeing pinned memory waits for the
// GPU. So nothing is given back to the driver; what a timer no longer needs serves the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda_driver.h"
#include "runtime/device_code.h"
#include "runtime/event_bracket.h"

namespace syncfree::runtime::cuda {

// Pinned memory for one stamp, with its address on the device.
struct StampPlace {
  Stamp* host = nullptr;
  DevicePointer device = 0;
};

class Device {
 public:
  // Of the context that is current on this thread.
  static Device& current();
  // Of the primary context of a device, which torch and the CUDA runtime use; makes it if need be.
  static Device& primary(int ordinal);

  Device(const Driver& driver, Context context) : driver_(driver), context_(context) {}

  const Driver& driver() const { return driver_; }
  Context context() const { return context_; }

  // With timing. May be pending still from its last owner, which a new record puts an end to.
  Event take_event();
  // Never recorded, so that none of its times is known until it is.
  Event new_event();
  void give_back(Event event);  // or null

  StampPlace take_stamp();
  // With the serial of a stamp that may be under way to it, which nobody else's must meet there;
  // 0 if none is.
  void give_back(StampPlace place, std::uint32_t under_way);

  // Compiled and loaded at the first use.
  const DeviceCode& code();

  // A stream that does not wait for others, made at the first use, on which nothing runs.
  Stream idle_stream();

  // What two events take by themselves; recorded at the first use.
  EventBracket& bracket();

  // Unique among all stamps, never 0.
  static std::uint32_t next_serial();

 private:
  const Driver& driver_;
  Context context_;
  std::recursive_mutex mutex_;
  std::vector<Event> events_;
  std::vector<StampPlace> stamps_;
  std::vector<std::pair<StampPlace, std::uint32_t>> late_stamps_;  // with what is under way to them
  std::unique_ptr<DeviceCode> code_;
  Stream idle_stream_ = nullptr;
  std::unique_ptr<EventBracket> bracket_;
};

}  // namespace syncfree::runtime::cuda
