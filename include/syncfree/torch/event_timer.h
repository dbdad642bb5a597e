// Regions on the current stream of a tensor's device.
#pragma once

#include "syncfree/event_timer.h"
#include "syncfree/torch/tensor.h"

namespace syncfree {

inline EventTimer::Region region_on(EventTimer& timer, const char* name, const at::Tensor& tensor) {
  const Device device = detail::device_of(tensor);
  return timer.region(name, detail::launch_on(tensor).stream, device.index);
}

}  // namespace syncfree
