// Adds to a state of one element: of a floating type or, for counts, int64.
#pragma once

#include "core/store_as.h"

namespace syncfree {

SYNCFREE_HD void add_to_state(void* state, DType dtype, double x) {
  store_as(state, dtype, 0, load_as<double>(state, dtype, 0) + x);
}

// An int64 state keeps counts exact.
SYNCFREE_HD void add_to_state(void* state, DType dtype, std::int64_t count) {
  if (dtype == DType::kInt64)
    *static_cast<std::int64_t*>(state) += count;
  else
    add_to_state(state, dtype, static_cast<double>(count));
}

}  // namespace syncfree
