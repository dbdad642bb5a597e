// The final arithmetic, which CPU and CUDA share.
#pragma once

#include "core/store_as.h"
#include "image_quality/image_quality.h"
#include "psnr/psnr_math.h"

namespace syncfree::image_quality {

inline psnr::Scale decibel_scale(const Problem& p) {
  return psnr::make_scale(p.range.width(), 10.0);
}

SYNCFREE_HD void store_errors(const Problem& p, const psnr::Scale& scale, std::int64_t index,
                              double squared, double absolute, std::int64_t elements) {
  const auto count = static_cast<double>(elements);
  if (p.psnr != nullptr)
    store_as(p.psnr, p.result_dtype, index, psnr::from_squared_error(squared, count, scale));
  store_as(p.mean_absolute_error, p.result_dtype, index, absolute / count);
}

}  // namespace syncfree::image_quality
