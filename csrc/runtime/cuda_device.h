// Events, stamps and kernels of a CUDA context, kept as long as the process lives. A stamp is the
// GPU's time and cycle counter, written to pinned memory by a kernel (device_code.h).
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
  // Of a device's primary context, which torch and the CUDA runtime use; creates it if need be.
  static Device& primary(int ordinal);

  Device(const Driver& driver, Context context) : driver_(driver), context_(context) {}

  const Driver& driver() const { return driver_; }
  Context context() const { return context_; }

  // With timing. Its last owner's record may still be pending; a new record replaces that.
  Event take_event();
  // A new event that was never recorded, so that no time of it is known until it is.
  Event new_event();
  void give_back(Event event);  // null is ignored

  StampPlace take_stamp();
  // `under_way` is the serial of a stamp that the GPU may still write there: the place is reused
  // only after that has arrived. 0 if there is none.
  void give_back(StampPlace place, std::uint32_t under_way);

  // Compiled and loaded at the first use.
  const DeviceCode& code();

  // A stream that does not wait for others and on which nothing runs; made at the first use.
  Stream idle_stream();

  // The time that two events take by themselves (event_bracket.h); recorded at the first use.
  EventBracket& bracket();

  // Unique among all stamps, never 0.
  static std::uint32_t next_serial();

 private:
  const Driver& driver_;
  Context context_;
  std::recursive_mutex mutex_;
  std::vector<Event> events_;
  std::vector<StampPlace> stamps_;
  std::vector<std::pair<StampPlace, std::uint32_t>> late_stamps_;  // with the serial under way
  std::unique_ptr<DeviceCode> code_;
  Stream idle_stream_ = nullptr;
  std::unique_ptr<EventBracket> bracket_;
};

}  // namespace syncfree::runtime::cuda
