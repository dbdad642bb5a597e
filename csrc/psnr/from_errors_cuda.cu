// PSNR from gathered errors on CUDA, in one launch.
#include <algorithm>

#include "core/block_sum.cuh"
#include "core/device_info.h"
#include "core/early_launch.cuh"
#include "core/last_block.cuh"
#include "psnr/from_errors_math.h"

namespace syncfree::psnr {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostChunks = 2048;
constexpr int kBlocksPerMultiprocessor = 4;

// The last block adds up the sums of all chunks, in a fixed order.
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    from_errors_kernel(const __grid_constant__ ErrorSums sums, std::int64_t results, Scale scale,
                       Chunks chunks, std::uint32_t* ticket, double* partial) {
  wait_for_kernel_ahead();
  const bool each = sums.reduction == Reduction::kNone;
  scale.log_range_squared = log_range_squared(sums.data_range, sums.data_range_dtype);
  for (std::int64_t chunk = blockIdx.x; chunk < chunks.count; chunk += gridDim.x) {
    const std::int64_t begin = chunk * chunks.elements;
    const std::int64_t end = min(begin + chunks.elements, results);
    double sum = 0.0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const double value = value_of(sums, i, scale);
      if (each)
        store_as(sums.value, sums.result_dtype, i, value);
      else
        sum += value;
    }
    if (each) continue;
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) partial[chunk] = sum;
  }
  if (each || !is_last_block(ticket, gridDim.x)) return;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < chunks.count; i += kThreads) sum += partial[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) store_reduced(sums, sum, results);
}

Chunks chunks_of(const ErrorSums& sums) {
  return make_chunks(sums.squared_error.numel(), kThreads, kMostChunks);
}

}  // namespace

WorkspaceSize workspace_size(const ErrorSums& sums) {
  if (sums.reduction == Reduction::kNone) return {};
  return {sizeof(std::uint32_t), static_cast<std::size_t>(chunks_of(sums).count) * sizeof(double)};
}

cudaError_t launch(const ErrorSums& sums, const Workspace& workspace, cudaStream_t stream) {
  const Chunks chunks = chunks_of(sums);
  const auto blocks = static_cast<unsigned int>(std::min<std::int64_t>(
      chunks.count,
      std::int64_t{kBlocksPerMultiprocessor} * current_device_info().multiprocessors));
  return launch_early(from_errors_kernel, blocks, kThreads, 0, stream, with_merged_dims(sums),
                      sums.squared_error.numel(), make_scale(1.0, sums.base), chunks,
                      static_cast<std::uint32_t*>(workspace.zeroed),
                      static_cast<double*>(workspace.scratch));
}

}  // namespace syncfree::psnr
