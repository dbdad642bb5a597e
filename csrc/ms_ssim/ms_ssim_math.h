// Arithmetic of multi-scale SSIM that CPU and CUDA share.
#pragma once

#include <cmath>

#include "ms_ssim/ms_ssim.h"

namespace syncfree::ms_ssim {

// The factor of one scale in the product. NaN passes through.
SYNCFREE_HD double factor(const Exponents& exponents, int scale, double mean) {
  if (exponents.normalize == Normalize::kRelu) mean = mean < 0.0 ? 0.0 : mean;
  if (exponents.normalize == Normalize::kSimple) mean = 0.5 * (mean + 1.0);
  return pow(mean, exponents.beta[scale]);
}

}  // namespace syncfree::ms_ssim
