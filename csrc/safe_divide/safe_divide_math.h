// The division that CPU and CUDA share.
#pragma once

#include "core/dtype.h"
#include "core/store_as.h"
#include "safe_divide/safe_divide.h"

namespace syncfree::safe_divide {

struct Offsets {
  std::int64_t num;
  std::int64_t denom;
};

SYNCFREE_HD Offsets offsets_of(const Problem& p, std::int64_t index) {
  Offsets offsets{0, 0};
  for (int d = p.num.rank - 1; d >= 0; --d) {
    const std::int64_t coordinate = index % p.num.size[d];
    index /= p.num.size[d];
    offsets.num += coordinate * p.num.stride[d];
    offsets.denom += coordinate * p.denom.stride[d];
  }
  return offsets;
}

// In double whatever the types: one rounding, to the result's.
SYNCFREE_HD void divide_element(const Problem& p, std::int64_t index) {
  const Offsets at = offsets_of(p, index);
  const double num = load_as<double>(p.num.data, p.num.dtype, at.num);
  const double denom = load_as<double>(p.denom.data, p.denom.dtype, at.denom);
  store_as(p.quotient, p.result_dtype, index, denom == 0.0 ? p.zero_division : num / denom);
}

}  // namespace syncfree::safe_divide
