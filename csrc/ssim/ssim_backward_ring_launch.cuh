// How the ring path cuts images into strips, and its launch for each type.
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "ssim/ssim_backward_ring.cuh"

namespace syncfree::ssim {

// At least two strips, so that none touches both edges of the image: images that take rings are
// wide enough.
inline GradientStrips cut_for_gradient_rings(std::int64_t height, std::int64_t width) {
  const std::int64_t inside = width - 2 * kMargin;
  const std::int64_t least = (inside + kMostOutputs - 1) / kMostOutputs;
  const std::int64_t columns = ((inside + least - 1) / least + kColumns - 1) / kColumns * kColumns;
  return {static_cast<int>((inside + columns - 1) / columns), static_cast<int>(columns),
          static_cast<int>((height + kUnitRows - 1) / kUnitRows), kUnitRows};
}

template <class Access, bool kErrors>
cudaError_t start_gradient_rings(const BackwardJob<float>& job, const WalkResults& results,
                                 cudaStream_t stream) {
  const GradientStrips strips = cut_for_gradient_rings(job.axes[1].size, job.axes[2].size);
  const std::int64_t total = job.planes * strips.strips * strips.units;
  const auto warps = static_cast<unsigned>(std::min<std::int64_t>(
      total, std::int64_t{kGradientWarps} * current_device_info().multiprocessors));
  gradient_ring_kernel<Access, kErrors><<<warps, 32, 0, stream>>>(job, strips, results);
  return cudaGetLastError();
}

template <bool kErrors>
cudaError_t launch_gradient_rings_as(const BackwardJob<float>& job, const WalkResults& results,
                                     cudaStream_t stream) {
  const auto start = [&]<class T>() {
    using Aligned = VectorPixelsOf<T, kColumns>;
    return Aligned::apply(job) ? start_gradient_rings<Aligned, kErrors>(job, results, stream)
                               : start_gradient_rings<PixelsOf<T>, kErrors>(job, results, stream);
  };
  switch (job.preds.dtype) {
    case DType::kFloat16:
      return start.template operator()<Half>();
    case DType::kBFloat16:
      return start.template operator()<BFloat16>();
    default:
      return start.template operator()<float>();
  }
}

}  // namespace syncfree::ssim
