// The scales of a pyramid: sizes, where their images lie, and the SSIM problem of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ms_ssim/ms_ssim.h"

namespace syncfree::ms_ssim {

// The type of pooled images.
inline DType pooled_dtype(const Problem& problem) {
  return problem.preds.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// The shape and strides of a pooled scale, which is contiguous.
inline TensorView pooled_view(const Problem& problem, int scale) {
  TensorView view = problem.preds;
  view.data = nullptr;
  view.dtype = pooled_dtype(problem);
  for (int axis = 2; axis < 5; ++axis)
    for (int i = 0; i < scale && view.size[axis] > 1; ++i) view.size[axis] /= 2;
  view.stride[4] = 1;
  for (int d = 3; d >= 0; --d) view.stride[d] = view.stride[d + 1] * view.size[d + 1];
  return view;
}

// A pyramid is the pooled scales of one tensor, one behind the other: `pooled_begin` of the scale
// after the last is its size. It needs no gaps for alignment, since kernels use vectors only for
// rows that are a whole number of vectors: then the scale is too, and the next one begins as well
// aligned as this one.
inline std::int64_t pooled_begin(const Problem& problem, int scale) {
  std::int64_t begin = 0;
  for (int finer = 1; finer < scale; ++finer) begin += pooled_view(problem, finer).numel();
  return begin;
}

inline std::int64_t pyramid_elements(const Problem& problem) {
  return pooled_begin(problem, problem.exponents.scales);
}

inline void* pooled_data(const Problem& problem, void* pyramid, int scale) {
  return static_cast<std::byte*>(pyramid) +
         pooled_begin(problem, scale) * size_of(pooled_dtype(problem));
}

inline std::int64_t mean_count(const Problem& problem) {
  return problem.exponents.scales * problem.preds.size[0];
}

// The images of one scale and the parameters of its SSIM, without results.
inline ssim::Problem scale_images(const Problem& problem, int scale) {
  ssim::Problem ssim;
  ssim.preds = problem.preds;
  ssim.target = problem.target;
  if (scale > 0) {
    ssim.preds = ssim.target = pooled_view(problem, scale);
    ssim.preds.data = pooled_data(problem, problem.preds_pyramid, scale);
    ssim.target.data = pooled_data(problem, problem.target_pyramid, scale);
  }
  std::copy_n(problem.axes, 3, ssim.axes);
  ssim.range = problem.range;
  ssim.k1 = problem.k1;
  ssim.k2 = problem.k2;
  ssim.reduction = Reduction::kNone;
  return ssim;
}

// The SSIM of one scale, with its results: the mean of each image, and the images of the next
// scale. `means` holds those of scale 0, then of scale 1, ...
inline ssim::Problem scale_problem(const Problem& problem, int scale, double* means) {
  ssim::Problem ssim = scale_images(problem, scale);
  ssim.result_dtype = DType::kFloat64;
  means += scale * problem.preds.size[0];
  if (scale == problem.exponents.scales - 1) {
    ssim.value = means;
  } else {
    ssim.contrast = means;
    ssim.pooled_preds = pooled_data(problem, problem.preds_pyramid, scale + 1);
    ssim.pooled_target = pooled_data(problem, problem.target_pyramid, scale + 1);
  }
  return ssim;
}

}  // namespace syncfree::ms_ssim
