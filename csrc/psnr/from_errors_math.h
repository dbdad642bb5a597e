// Arithmetic of PSNR from gathered errors that CPU and CUDA share.
#pragma once

#include "core/merge_dims.h"
#include "core/pair_offsets.h"
#include "core/store_as.h"
#include "psnr/from_errors.h"
#include "psnr/psnr_math.h"

namespace syncfree::psnr {

inline ErrorSums with_merged_dims(ErrorSums sums) {
  merge_dims(sums.squared_error, sums.total, 0, sums.squared_error.rank);
  return sums;
}

// In double whatever the types, and then rounded to the result's.
SYNCFREE_HD double value_of(const ErrorSums& sums, std::int64_t result, const Scale& scale) {
  const PairOffsets at = offsets_of(sums.squared_error, sums.total, result);
  return from_squared_error(
      load_as<double>(sums.squared_error.data, sums.squared_error.dtype, at.first),
      load_as<double>(sums.total.data, sums.total.dtype, at.second), scale);
}

SYNCFREE_HD void store_reduced(const ErrorSums& sums, double sum, std::int64_t results) {
  store_as(sums.value, sums.result_dtype, 0,
           sums.reduction == Reduction::kMean ? sum / static_cast<double>(results) : sum);
}

}  // namespace syncfree::psnr
