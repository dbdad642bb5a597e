#include "runtime/cuda_device.h"

#include <map>
#include <new>
#include <utility>

namespace syncfree::runtime::cuda {
namespace {

constexpr std::size_t kStampBytes = 32;  // for each Stamp, so that none straddles two cache lines
constexpr std::size_t kStampsAtOnce = 128;

Device& device_of(const Driver& driver, Context context) {
  // Never freed: at the end of a process the driver may be gone before static objects are.
  static auto& devices = *new std::map<std::pair<const Driver*, Context>, std::unique_ptr<Device>>;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  auto& device = devices[{&driver, context}];
  if (device == nullptr) device = std::make_unique<Device>(driver, context);
  return *device;
}

}  // namespace

Device& Device::current() {
  const Driver& loaded = cuda::driver();
  return device_of(loaded, current_context(loaded));
}

Device& Device::primary(int ordinal) {
  const Driver& loaded = cuda::driver();
  int device = 0;
  loaded.check(loaded.device_get(&device, ordinal), "cuDeviceGet");
  Context context = nullptr;
  loaded.check(loaded.primary_context_retain(&context, device), "cuDevicePrimaryCtxRetain");
  return device_of(loaded, context);
}

Event Device::take_event() {
  const std::lock_guard lock(mutex_);
  if (!events_.empty()) {
    Event event = events_.back();
    events_.pop_back();
    return event;
  }
  return new_event();
}

Event Device::new_event() {
  const DuringCaptures allowed(driver_);
  const InContext here(driver_, context_);
  Event event = nullptr;
  driver_.check(driver_.event_create(&event, 0), "cuEventCreate");
  return event;
}

void Device::give_back(Event event) {
  if (event == nullptr) return;
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

StampPlace Device::take_stamp() {
  const std::lock_guard lock(mutex_);
  std::erase_if(late_stamps_, [this](const auto& late) {
    const bool arrived = late.first.host->has_arrived(late.second);
    if (arrived) stamps_.push_back(late.first);
    return arrived;
  });
  if (stamps_.empty()) {
    const DuringCaptures allowed(driver_);
    const InContext here(driver_, context_);
    void* memory = nullptr;
    DevicePointer address = 0;
    driver_.check(driver_.host_alloc(&memory, kStampsAtOnce * kStampBytes, kHostPortableMapped),
                  "cuMemHostAlloc");
    driver_.check(driver_.host_device_pointer(&address, memory, 0), "cuMemHostGetDevicePointer");
    for (std::size_t i = kStampsAtOnce; i-- > 0;)
      stamps_.push_back(
          {new (static_cast<char*>(memory) + i * kStampBytes) Stamp{}, address + i* kStampBytes});
  }
  const StampPlace place = stamps_.back();
  stamps_.pop_back();
  return place;
}

void Device::give_back(StampPlace place, std::uint32_t under_way) {
  if (place.host == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (under_way == 0)
    stamps_.push_back(place);
  else
    late_stamps_.emplace_back(place, under_way);
}

const DeviceCode& Device::code() {
  const std::lock_guard lock(mutex_);
  if (code_ == nullptr) {
    const DuringCaptures allowed(driver_);
    const InContext here(driver_, context_);
    auto made = std::make_unique<DeviceCode>(driver_);
    // The driver loads a kernel at its first launch, which may wait for the GPU: launch both now.
    const StampPlace place = take_stamp();
    made->spin(idle_stream(), 0);
    const std::uint32_t serial = next_serial();
    made->stamp(idle_stream(), place.device, serial);
    give_back(place, serial);
    code_ = std::move(made);
  }
  return *code_;
}

Stream Device::idle_stream() {
  const std::lock_guard lock(mutex_);
  if (idle_stream_ == nullptr) {
    const DuringCaptures allowed(driver_);
    const InContext here(driver_, context_);
    driver_.check(driver_.stream_create(&idle_stream_, kStreamNonBlocking), "cuStreamCreate");
  }
  return idle_stream_;
}

EventBracket& Device::bracket() {
  const std::lock_guard lock(mutex_);
  if (bracket_ == nullptr) bracket_ = std::make_unique<EventBracket>(*this);
  return *bracket_;
}

std::uint32_t Device::next_serial() {
  static std::atomic<std::uint32_t> last{0};
  std::uint32_t serial = 0;
  while (serial == 0) serial = ++last;
  return serial;
}

}  // namespace syncfree::runtime::cuda
