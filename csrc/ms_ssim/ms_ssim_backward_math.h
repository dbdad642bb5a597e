// What the CPU and CUDA gradients share: the chain rule for the product, and the SSIM gradient of
// each scale.
#pragma once

#include "ms_ssim/ms_ssim_backward.h"
#include "ms_ssim/ms_ssim_math.h"
#include "ms_ssim/ms_ssim_pyramid.h"
#include "ssim/ssim_backward_math.h"

namespace syncfree::ms_ssim {

// The derivative of `factor` by the mean. A power below one is infinitely steep at zero; its slope
// counts as 0 there, since training needs finite gradients. NaN passes through.
SYNCFREE_HD double factor_slope(const Exponents& exponents, int scale, double mean) {
  const double beta = exponents.beta[scale];
  if (beta == 0.0 || (exponents.normalize == Normalize::kRelu && mean <= 0.0)) return 0.0;
  const bool simple = exponents.normalize == Normalize::kSimple;
  const double base = simple ? 0.5 * (mean + 1.0) : mean;
  if (base == 0.0 && beta < 1.0) return 0.0;
  return (simple ? 0.5 : 1.0) * beta * pow(base, beta - 1.0);
}

// The derivative of an image's value by its mean at one scale. All other factors are multiplied,
// since the value cannot be divided by a factor that may be zero.
SYNCFREE_HD double value_slope(const Exponents& exponents, int scale, std::int64_t image,
                               std::int64_t images, const double* means, const double* factors) {
  double slope = factor_slope(exponents, scale, means[scale * images + image]);
  for (int other = 0; other < exponents.scales; ++other)
    if (other != scale) slope *= factors[other * images + image];
  return slope;
}

// The fraction of the value's incoming gradient that each image receives.
inline double image_share(const Problem& problem) {
  return problem.reduction == Reduction::kMean ? 1.0 / static_cast<double>(problem.preds.size[0])
                                               : 1.0;
}

inline ssim::Gradient scale_gradient(const Problem& forward, const ssim::Gradient& finest,
                                     void* pyramid, int scale) {
  ssim::Gradient gradient;
  if (finest.data == nullptr) return gradient;
  gradient = finest;
  if (scale > 0) {
    gradient.layout = pooled_view(forward, scale);
    gradient.data = pooled_data(forward, pyramid, scale);
  }
  if (scale + 1 < forward.exponents.scales) {
    gradient.pooled = pooled_view(forward, scale + 1);
    gradient.pooled.data = pooled_data(forward, pyramid, scale + 1);
  }
  return gradient;
}

// The SSIM gradient of one scale, which adds that of the next coarser one. `mean_gradients` holds
// the incoming gradients of the means, in the layout of the means.
inline ssim::BackwardProblem scale_problem(const BackwardProblem& problem, int scale,
                                           const double* mean_gradients) {
  const Problem& forward = problem.forward;
  const std::int64_t images = forward.preds.size[0];
  ssim::BackwardProblem ssim;
  ssim.forward = scale_images(forward, scale);
  const bool last = scale == forward.exponents.scales - 1;
  TensorView& arriving = last ? ssim.grad_value : ssim.grad_contrast;
  arriving = {mean_gradients + scale * images, DType::kFloat64, 1, {images}, {1}};
  ssim.preds = scale_gradient(forward, problem.preds, problem.preds_pyramid, scale);
  ssim.target = scale_gradient(forward, problem.target, problem.target_pyramid, scale);
  return ssim;
}

}  // namespace syncfree::ms_ssim
