// Gradients of values of large images: which these are, how they are cut, and the launch.
#include "ssim/ssim_backward_walk.cuh"

#include <algorithm>

#include "core/device_info.h"

namespace syncfree::ssim {
namespace {

// A strip at the edge needs no windows beyond it; any other has kMargin columns more on both sides,
// which keeps vectors aligned.
WalkStrips cut(const BackwardJob<float>& job) {
  const std::int64_t width = job.axes[2].size;
  constexpr std::int64_t kMost = kGroupColumns - 2 * kMargin;
  const std::int64_t strips = width <= kGroupColumns ? 1 : (width + kMost - 1) / kMost;
  const std::int64_t columns =
      ((width + strips - 1) / strips + kWalkColumns - 1) / kWalkColumns * kWalkColumns;
  return {static_cast<int>((width + columns - 1) / columns), static_cast<int>(columns),
          static_cast<int>((job.axes[1].size + kUnitRows - 1) / kUnitRows)};
}

// Each block of a multiprocessor has its own, and the system takes 1 KiB besides.
template <int kLag>
constexpr int kMemoryOfAll = kWalkBlocks * (kWalkMemory<kLag> + 1024);
static_assert(kMemoryOfAll<0> <= 100 << 10, "all but Turing have as much");

template <class Access, int kLag>
cudaError_t start(const BackwardJob<float>& job, cudaStream_t stream) {
  const WalkStrips strips = cut(job);
  const auto kernel = backward_walk_kernel<Access, kLag>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWalkMemory<kLag>);
  if (error != cudaSuccess) return error;
  const std::int64_t total = job.planes * strips.strips * strips.units;
  const unsigned blocks = static_cast<unsigned>(
      std::min<std::int64_t>(total, kWalkBlocks * current_device_info().multiprocessors));
  kernel<<<blocks, kWalkThreads, kWalkMemory<kLag>, stream>>>(job, strips);
  return cudaGetLastError();
}

template <class Access>
cudaError_t start_with_lag(const BackwardJob<float>& job, cudaStream_t stream) {
  const int memory = current_device_info().shared_memory_per_block + 1024;
  return kMemoryOfAll<1> <= memory ? start<Access, 1>(job, stream) : start<Access, 0>(job, stream);
}

template <class T>
cudaError_t start_of(const BackwardJob<float>& job, cudaStream_t stream) {
  return VectorPixelsOf<T>::apply(job) ? start_with_lag<VectorPixelsOf<T>>(job, stream)
                                       : start_with_lag<PixelsOf<T>>(job, stream);
}

bool has_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace

// By the shape of the image alone: neither a batch nor a layout changes a bit of its gradient.
// Smaller images keep too few blocks busy, for each walk begins with 20 rows that give nothing.
bool backward_walks_apply(const BackwardProblem& problem) {
  constexpr std::int64_t kLeastRows = 720, kLeastColumns = 1280;
  const Problem& images = problem.forward;
  return backward_strips_apply(problem) && has_type(images.preds.dtype) &&
         images.preds.dtype == images.target.dtype && images.preds.size[3] >= kLeastRows &&
         images.preds.size[4] >= kLeastColumns &&
         images.range.source != DataRange::Source::kInterval && problem.grad_map.data == nullptr &&
         problem.grad_squared_error.data == nullptr &&
         problem.grad_absolute_error.data == nullptr && problem.preds.pooled.data == nullptr &&
         problem.target.pooled.data == nullptr;
}

cudaError_t launch_backward_walks(const BackwardJob<float>& job, cudaStream_t stream) {
  switch (job.preds.dtype) {
    case DType::kFloat16:
      return start_of<Half>(job, stream);
    case DType::kBFloat16:
      return start_of<BFloat16>(job, stream);
    default:
      return start_of<float>(job, stream);
  }
}

}  // namespace syncfree::ssim
