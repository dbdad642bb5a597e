// Fresh tensors on CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/torch_abi.h"

namespace syncfree::ops {

// Contiguous and uninitialized, of at most kMaxRank dimensions.
Tensor empty_on_cuda(std::span<const std::int64_t> sizes, ScalarType dtype, std::int32_t device);

}  // namespace syncfree::ops
