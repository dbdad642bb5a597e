// Two tensors of shapes and dtypes that meet as torch has them meet.
#pragma once

#include <vector>

#include "ops/any_rank.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// Throws where the shapes do not broadcast.
std::vector<std::int64_t> common_sizes(const Tensor& a, const Tensor& b, const char* a_name,
                                       const char* b_name);

// Both as views of `sizes`, repeating what has size one or is missing in front.
Operands broadcast(const Tensor& a, const Tensor& b, const std::vector<std::int64_t>& sizes);

// Integers count as float32.
constexpr DType as_floating(DType dtype) {
  return is_floating(dtype) ? dtype : DType::kFloat32;
}

// Of two floating types, where a scalar tensor yields.
DType common_dtype(DType a, bool a_is_scalar, DType b, bool b_is_scalar);

}  // namespace syncfree::ops
