// Finishes PSNR and mean absolute error on CUDA: one small block.
#include "core/block_sum.cuh"
#include "image_quality/image_quality.h"
#include "image_quality/image_quality_math.h"

namespace syncfree::image_quality {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    finish_kernel(const __grid_constant__ Problem problem, psnr::Scale scale) {
  double squared = 0.0, absolute = 0.0;
  for (std::int64_t i = threadIdx.x; i < problem.images; i += kThreads) {
    squared += problem.squared_error[i];
    absolute += problem.absolute_error[i];
    if (problem.reduction == Reduction::kNone)
      store_errors(problem, scale, i, problem.squared_error[i], problem.absolute_error[i],
                   problem.elements);
  }
  if (problem.reduction == Reduction::kNone) return;
  squared = block_sum<kThreads>(squared);
  absolute = block_sum<kThreads>(absolute);
  if (threadIdx.x == 0)
    store_errors(problem, scale, 0, squared, absolute, problem.images * problem.elements);
}

}  // namespace

cudaError_t launch(const Problem& problem, const Workspace&, cudaStream_t stream) {
  finish_kernel<<<1, kThreads, 0, stream>>>(problem, decibel_scale(problem));
  return cudaGetLastError();
}

}  // namespace syncfree::image_quality
