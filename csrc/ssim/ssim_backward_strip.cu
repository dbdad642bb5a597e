// Strip path of the gradient: which images it takes, how they are cut, and its launch.
#include <algorithm>
#include <cstdlib>

#include "core/device_info.h"
#include "ssim/ssim_backward_strip.cuh"

namespace syncfree::ssim {
namespace {

// Each piece recomputes the halo above and below it, but more pieces fill the GPU better. A piece
// begins at a multiple of a step's rows, so its height changes no bit of the result.
int rows_of_piece(std::int64_t strips, std::int64_t height) {
  const std::int64_t slots =
      std::int64_t{kBackwardBlocksPerMultiprocessor} * current_device_info().multiprocessors;
  int best = kStepRows;
  std::int64_t least = INT64_MAX;
  for (int rows = kStepRows; rows <= 512; rows *= 2) {
    const std::int64_t pieces = strips * ((height + rows - 1) / rows);
    const std::int64_t taken = std::min<std::int64_t>(rows, height) + 4 * kReach;
    const std::int64_t time = (pieces + slots - 1) / slots * taken;
    if (time < least) {
      least = time;
      best = rows;
    }
  }
  return best;
}

template <class Pixels>
cudaError_t start(const BackwardJob<float>& job, const GaussianTaps& taps, cudaStream_t stream) {
  const auto kernel = backward_strip_kernel<Pixels>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           sizeof(StripMemory));
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  const std::int64_t height = job.axes[1].size;
  const std::int64_t strips = (job.axes[2].size + kStripOutputs - 1) / kStripOutputs;
  const int rows = rows_of_piece(job.planes * strips, height);
  const std::int64_t pieces = (height + rows - 1) / rows;
  const unsigned blocks =
      static_cast<unsigned>(std::min<std::int64_t>(job.planes * strips * pieces, INT32_MAX));
  kernel<<<blocks, kBackwardThreads, sizeof(StripMemory), stream>>>(
      job, taps, static_cast<int>(strips), static_cast<int>(pieces), rows);
  return cudaGetLastError();
}

}  // namespace

bool backward_strips_apply(const BackwardProblem& problem) {
  const Problem& images = problem.forward;
  // Without padding, windows at the border get a weight of zero. Only the incoming gradient of a
  // map has another size then, which this path does not support.
  const int pad = images.axes[1].pad;
  const bool pads = pad == kReach || (pad == 0 && problem.grad_map.data == nullptr);
  const auto is_default = [&](const Axis& axis) {
    return axis.taps == kGaussianTaps && axis.pad == pad && axis.sigma == 1.5;
  };
  constexpr std::int64_t kLongest = 1 << 28;
  const auto row_fits = [&](const TensorView& view) {
    return std::abs(view.stride[4]) * view.size[4] < INT32_MAX;
  };
  return pads && has_normal_denominators(images) && row_fits(images.preds) &&
         row_fits(images.target) && images.preds.dtype != DType::kFloat64 &&
         images.preds.size[2] == 1 && images.axes[0].taps == 1 && images.axes[0].pad == 0 &&
         is_default(images.axes[1]) && is_default(images.axes[2]) &&
         images.preds.size[3] < kLongest && images.preds.size[4] < kLongest;
}

cudaError_t launch_backward_strips(const BackwardJob<float>& job, const Axis& axis,
                                   cudaStream_t stream) {
  GaussianTaps taps;
  fill_taps(axis, taps.tap);
  const DType dtype = job.preds.dtype;
  if (dtype != job.target.dtype) return start<PixelsOfAnyType>(job, taps, stream);
  switch (dtype) {
    case DType::kFloat32:
      return start<PixelsOf<float>>(job, taps, stream);
    case DType::kFloat16:
      return start<PixelsOf<Half>>(job, taps, stream);
    case DType::kBFloat16:
      return start<PixelsOf<BFloat16>>(job, taps, stream);
    default:
      return start<PixelsOfAnyType>(job, taps, stream);
  }
}

}  // namespace syncfree::ssim
