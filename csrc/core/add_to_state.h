// Growing a state of one element, of whatever type its owner keeps it in.
#pragma once

#include "core/store_as.h"

namespace syncfree {

SYNCFREE_HD void add_to_state(void* state, DType dtype, double x) {
  store_as(state, dtype, 0, load_as<double>(state, dtype, 0) + x);
}

// Counts stay exact where they are kept as integers.
SYNCFREE_HD void add_to_state(void* state, DType dtype, std::int64_t count) {
  if (dtype == DType::kInt64)
    *static_cast<std::int64_t*>(state) += count;
  else
    add_to_state(state, dtype, static_cast<double>(count));
}

}  // namespace syncfree
