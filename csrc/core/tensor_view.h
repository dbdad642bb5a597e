// A tensor as kernels see it: pointer, element type, sizes and strides counted in elements.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree {

inline constexpr int kMaxRank = 8;

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int rank = 0;
  std::int64_t size[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }
};

}  // namespace syncfree
