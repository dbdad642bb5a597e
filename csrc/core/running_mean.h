// A mean over batches as TorchMetrics' classes keep it: the sum of all terms, and their number.
#pragma once

#include <cstdint>

#include "core/add_to_state.h"

namespace syncfree {

// States of one element each; null where there is none.
struct RunningMean {
  void* sum = nullptr;
  DType sum_dtype = DType::kFloat32;
  void* total = nullptr;
  DType total_dtype = DType::kFloat32;
};

SYNCFREE_HD void add_batch(const RunningMean& mean, double sum, std::int64_t count) {
  if (mean.sum != nullptr) add_to_state(mean.sum, mean.sum_dtype, sum);
  if (mean.total != nullptr) add_to_state(mean.total, mean.total_dtype, count);
}

}  // namespace syncfree
