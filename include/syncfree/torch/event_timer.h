// Regions on the current stream of a tensor's device.
#pragma once

#include "syncfree/event_timer.h"
#include "syncfree/torch/tensor.h"

namespace syncfree {

// Throws c10::Error for a tensor on the CPU and a timer of CUDA.
inline EventTimer::Region region_on(EventTimer& timer, const char* name, const at::Tensor& tensor) {
  const Device device = detail::device_of(tensor);
  TORCH_CHECK(timer.device_type() == Device::Type::kCpu || device.type == Device::Type::kCuda,
              "syncfree: expected a tensor on CUDA for a region of a timer of CUDA, but got cpu. "
              "Time it with an EventTimer of Device::Type::kCpu.");
  return timer.region(name, detail::launch_on(tensor).stream, device.index);
}

}  // namespace syncfree
