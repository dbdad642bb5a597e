#include "runtime/clock_stamp.h"

#include "runtime/own_call.h"

namespace syncfree::runtime {

ClockStamp::~ClockStamp() {
  if (device_ != nullptr) device_->give_back(place_, serial_);
}

void ClockStamp::record(cuda::Stream stream) {
  const OwnCall own;
  if (device_ == nullptr) device_ = &cuda::Device::current();
  const std::uint32_t before = std::exchange(serial_, 0);
  // A stamp that is under way may come after the new one, so that one gets another place.
  if (before != 0 && !place_.host->has_arrived(before))
    device_->give_back(std::exchange(place_, {}), before);
  if (place_.host == nullptr) place_ = device_->take_stamp();
  const std::uint32_t serial = cuda::Device::next_serial();
  device_->code().stamp(stream, place_.device, serial);
  serial_ = serial;
}

bool ClockStamp::ready() const {
  return serial_ != 0 && place_.host->has_arrived(serial_);
}

const cuda::Stamp& ClockStamp::read() const {
  if (!ready())
    throw cuda::Error("a ClockStamp has not arrived yet: record() it and ask ready() until True");
  return *place_.host;
}

}  // namespace syncfree::runtime
