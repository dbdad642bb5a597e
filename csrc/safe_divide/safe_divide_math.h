// The division that CPU and CUDA share.
#pragma once

#include "core/dtype.h"
#include "core/pair_offsets.h"
#include "core/store_as.h"
#include "safe_divide/safe_divide.h"

namespace syncfree::safe_divide {

// In double whatever the types, and then rounded to the result's.
SYNCFREE_HD void divide_element(const Problem& p, const PairOffsets& at, std::int64_t index) {
  const double num = load_as<double>(p.num.data, p.num.dtype, at.first);
  const double denom = load_as<double>(p.denom.data, p.denom.dtype, at.second);
  store_as(p.quotient, p.result_dtype, index, denom == 0.0 ? p.zero_division : num / denom);
}

}  // namespace syncfree::safe_divide
