// Broadcasting and type promotion of two tensors, as in torch.
#pragma once

#include <vector>

#include "ops/any_rank.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// The common shape; throws if the shapes do not broadcast.
std::vector<std::int64_t> common_sizes(const Tensor& a, const Tensor& b, const char* a_name,
                                       const char* b_name);

// Both as views of `sizes`: dimensions of size one, or missing in front, repeat with stride 0.
Operands broadcast(const Tensor& a, const Tensor& b, const std::vector<std::int64_t>& sizes);

// Integers count as float32.
constexpr DType as_floating(DType dtype) {
  return is_floating(dtype) ? dtype : DType::kFloat32;
}

// The promotion of two floating types. The type of a scalar tensor yields to the other one.
DType common_dtype(DType a, bool a_is_scalar, DType b, bool b_is_scalar);

}  // namespace syncfree::ops
