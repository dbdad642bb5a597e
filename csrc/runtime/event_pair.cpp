#include "runtime/event_pair.h"

#include "runtime/own_call.h"

namespace syncfree::runtime {

EventPair::~EventPair() {
  if (device_ == nullptr) return;
  device_->give_back(start_);
  device_->give_back(stop_);
}

void EventPair::start(cuda::Stream stream) {
  const OwnCall own;
  if (device_ == nullptr) {
    cuda::Device& device = cuda::Device::current();
    start_ = device.take_event();
    try {
      stop_ = device.take_event();
    } catch (...) {
      device.give_back(start_);
      throw;
    }
    device_ = &device;
  }
  stopped_ = false;
  device_->driver().check(device_->driver().event_record(start_, stream), "cuEventRecord");
}

void EventPair::stop(cuda::Stream stream) {
  if (device_ == nullptr) throw cuda::Error("an EventPair was stopped before it was started");
  const OwnCall own;
  device_->driver().check(device_->driver().event_record(stop_, stream), "cuEventRecord");
  stopped_ = true;
}

bool EventPair::started() const {
  return device_ != nullptr && has_passed(start_);
}

bool EventPair::ready() const {
  return stopped_ && has_passed(stop_) && has_passed(start_);  // perhaps on different streams
}

bool EventPair::has_passed(cuda::Event event) const {
  const OwnCall own;
  const cuda::Driver& driver = device_->driver();
  const cuda::DuringCaptures allowed(driver);
  const cuda::Result result = driver.event_query(event);
  if (result != cuda::kNotReady) driver.check(result, "cuEventQuery");
  return result != cuda::kNotReady;
}

double EventPair::microseconds() const {
  if (!ready())
    throw cuda::Error("the time of an EventPair is not known yet: ask ready() until it is True");
  const OwnCall own;
  float milliseconds = 0;
  device_->driver().check(device_->driver().elapsed(&milliseconds, start_, stop_),
                          "cuEventElapsedTime");
  return milliseconds * 1e3;
}

}  // namespace syncfree::runtime
