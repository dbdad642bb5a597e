// Fresh tensors on CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/torch_abi.h"

namespace syncfree::ops {

// A contiguous tensor on the device, as a handle of torch's. Throws torch's own error where there
// is no memory.
using EmptyOnCuda = void*(const std::int64_t* sizes, std::size_t rank, std::int32_t dtype,
                          std::int32_t device);

// What csrc/call provides, null without it. The one way of the stable ABI goes through torch's
// dispatcher: 1.05 us on an H100's host, of which torch's allocator takes 0.4.
EmptyOnCuda* empty_on_cuda();

}  // namespace syncfree::ops
