#include "runtime/clock_stamp.h"

#include "runtime/own_call.h"

namespace syncfree::runtime {

ClockStamp::~ClockStamp() {
  if (device_ != nullptr) device_->give_back(place_, serial_);
}

void ClockStamp::record(cuda::Stream stream) {
  const OwnCall own;
  if (device_ == nullptr) {
    cuda::Device& device = cuda::Device::current();
    place_ = device.take_stamp();
    device_ = &device;
  }
  serial_ = cuda::Device::next_serial();
  device_->code().stamp(stream, place_.device, serial_);
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
