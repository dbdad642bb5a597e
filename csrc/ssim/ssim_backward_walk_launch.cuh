// How the walk path cuts images into strips, and its launch for each type.
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "ssim/ssim_backward_walk.cuh"

namespace syncfree::ssim {

// A strip needs no windows beyond an edge of the image. Elsewhere it has kMargin more columns of
// windows on both sides, which keeps vectors aligned.
inline WalkStrips cut_for_walks(const BackwardJob<float>& job) {
  const std::int64_t width = job.axes[2].size;
  constexpr std::int64_t kMost = kGroupColumns - 2 * kMargin;
  const std::int64_t strips = width <= kGroupColumns ? 1 : (width + kMost - 1) / kMost;
  const std::int64_t columns =
      ((width + strips - 1) / strips + kWalkColumns - 1) / kWalkColumns * kWalkColumns;
  return {static_cast<int>((width + columns - 1) / columns), static_cast<int>(columns),
          static_cast<int>((job.axes[1].size + kUnitRows - 1) / kUnitRows)};
}

// Of all blocks of a multiprocessor; the system reserves 1 KiB more for each block.
template <int kLag, bool kValues>
inline constexpr int kMemoryOfAll = kWalkBlocks * (kWalkMemory<kLag, kValues> + 1024);
static_assert(kMemoryOfAll<0, false> <= 100 << 10, "all but Turing have as much");

template <int kLag, bool kValues>
bool walks_fit() {
  return kMemoryOfAll<kLag, kValues> <= current_device_info().shared_memory_per_block + 1024;
}

template <class Access, int kLag, bool kErrors, bool kValues = false>
cudaError_t start_walks(const BackwardJob<float>& job, const WalkResults& results,
                        cudaStream_t stream) {
  const WalkStrips strips = cut_for_walks(job);
  const auto kernel = backward_walk_kernel<Access, kLag, kErrors, kValues>;
  constexpr int kMemory = kWalkMemory<kLag, kValues>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
  if (error != cudaSuccess) return error;
  const std::int64_t total = job.planes * strips.strips * strips.units;
  const unsigned blocks = static_cast<unsigned>(
      std::min<std::int64_t>(total, kWalkBlocks * current_device_info().multiprocessors));
  kernel<<<blocks, kWalkThreads, kMemory, stream>>>(job, strips, results);
  return cudaGetLastError();
}

template <class Access, bool kErrors>
cudaError_t start_walks_with_lag(const BackwardJob<float>& job, cudaStream_t stream) {
  return walks_fit<1, false>() ? start_walks<Access, 1, kErrors>(job, {}, stream)
                               : start_walks<Access, 0, kErrors>(job, {}, stream);
}

template <class T, bool kErrors>
cudaError_t start_walks_of(const BackwardJob<float>& job, cudaStream_t stream) {
  return VectorPixelsOf<T>::apply(job)
             ? start_walks_with_lag<VectorPixelsOf<T>, kErrors>(job, stream)
             : start_walks_with_lag<PixelsOf<T>, kErrors>(job, stream);
}

template <bool kErrors>
cudaError_t launch_backward_walks_as(const BackwardJob<float>& job, cudaStream_t stream) {
  switch (job.preds.dtype) {
    case DType::kFloat16:
      return start_walks_of<Half, kErrors>(job, stream);
    case DType::kBFloat16:
      return start_walks_of<BFloat16, kErrors>(job, stream);
    default:
      return start_walks_of<float, kErrors>(job, stream);
  }
}

}  // namespace syncfree::ssim
