// The sweep over idle gaps on the current stream of a tensor's device.
#pragma once

#include "syncfree/idle_gap.h"
#include "syncfree/torch/tensor.h"

#if defined(SYNCFREE_TORCH_HAS_CUDA)
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace syncfree {

// Like `idle_gap`, on the device of `tensor` and its current stream, with the count of torch's
// allocator. Throws c10::Error if the status is not ok.
template <class Body>
IdleGap idle_gap_on(const at::Tensor& tensor, Body&& body, IdleGapOptions options = {}) {
  options.device = detail::device_of(tensor);
  options.stream = detail::launch_on(tensor).stream;
#if defined(SYNCFREE_TORCH_HAS_CUDA)
  if (tensor.is_cuda() && !options.device_allocations)
    options.device_allocations = [index = tensor.device().index()] {
      return c10::cuda::CUDACachingAllocator::getDeviceStats(index).num_device_alloc;
    };
#endif
  IdleGap sweep;
  check(idle_gap(body, options, sweep));
  return sweep;
}

}  // namespace syncfree
