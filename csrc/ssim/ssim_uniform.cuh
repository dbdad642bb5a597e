// Uniform strips: the fast path of the uniform window where a multiprocessor has shared memory for
// twelve warps. Pixels in flight and half of a column's sums are kept there, so that the registers
// are enough for twelve warps.
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "core/early_launch.cuh"
#include "ssim/pixel_types.h"
#include "ssim/ssim_uniform_walk.cuh"
#include "ssim/strip_shares.h"

namespace syncfree::ssim {

// Each strip is cut into pieces of whole units. Warps take pieces by turns, neighboring strips at
// the same time.
template <class Rows, StripTask kTask>
__global__ void __launch_bounds__(32 * kUniformWarps, 1)
    uniform_strip_kernel(const __grid_constant__ Job<float> job,
                         const __grid_constant__ StripUnits units, int pieces_of_strip) {
  if constexpr (kCompilesUniformStrips) {
    extern __shared__ uint4 dynamic_memory[];
    __shared__ Constants<float> constants;
    wait_for_kernel_ahead();
    if (threadIdx.x == 0)
      constants = job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants;
    __syncthreads();
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    UniformWalk<Rows, kTask> walk(
        job, units, reinterpret_cast<UniformMemory*>(dynamic_memory)[warp], constants);
    const std::int64_t strips = job.results.images * job.geometry.channels * units.strips;
    for (std::int64_t i = std::int64_t{blockIdx.x} * warps + warp; i < strips * pieces_of_strip;
         i += std::int64_t{gridDim.x} * warps) {
      const std::int64_t piece = i / strips, strip = i - piece * strips;
      const std::int64_t begin = units.of_strip * piece / pieces_of_strip;
      const std::int64_t end = units.of_strip * (piece + 1) / pieces_of_strip;
      walk.run(strip * units.of_strip + begin, static_cast<int>(end - begin));
    }
  } else {
    __trap();  // fails, instead of writing nothing
  }
}

// Into how many pieces a strip is cut so that all pieces take the least time on `warps` warps. In a
// turn each warp takes one piece; of the numbers of pieces that take the same number of turns only
// the largest is tried.
inline std::int64_t uniform_pieces(std::int64_t strips, const StripUnits& units,
                                   std::int64_t warps) {
  const std::int64_t least_turns = (strips + warps - 1) / warps;
  std::int64_t best = 1, least_rows = INT64_MAX;
  for (std::int64_t turns = least_turns; turns < least_turns + 32; ++turns) {
    const std::int64_t pieces = std::min(turns * warps / strips, units.of_strip);
    const std::int64_t blocks = (units.of_strip + pieces - 1) / pieces;
    const std::int64_t rows = turns * (blocks * units.rows + kRowsOfABeginning);
    if (rows < least_rows) least_rows = rows, best = pieces;
  }
  return best;
}

template <StripTask kTask, class Rows>
cudaError_t start_uniform_strips(const Job<float>& job, const StripUnits& units,
                                 cudaStream_t stream) {
  const std::int64_t multiprocessors = current_device_info().multiprocessors;
  const std::int64_t strips = job.results.images * job.geometry.channels * units.strips;
  const std::int64_t pieces = uniform_pieces(strips, units, kUniformWarps * multiprocessors);
  // Smaller blocks if otherwise some multiprocessors would have none.
  const std::int64_t warps = std::clamp<std::int64_t>(
      (strips * pieces + multiprocessors - 1) / multiprocessors, 1, kUniformWarps);
  const auto blocks =
      static_cast<unsigned>(std::min((strips * pieces + warps - 1) / warps, multiprocessors));
  const auto kernel = uniform_strip_kernel<Rows, kTask>;
  const int memory = static_cast<int>(warps * sizeof(UniformMemory));
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kUniformWarps * sizeof(UniformMemory)));
  if (error != cudaSuccess) return error;
  return launch_early(kernel, blocks, static_cast<unsigned>(32 * warps), memory, stream, job, units,
                      static_cast<int>(pieces));
}

template <StripTask kTask>
cudaError_t launch_uniform_strips_as(const Job<float>& job, const StripUnits& units,
                                     cudaStream_t stream) {
  return dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    if (CopiedVectors<T>::apply(job.preds, job.target, job.geometry))
      return start_uniform_strips<kTask, CopiedVectors<T>>(job, units, stream);
    return start_uniform_strips<kTask, CopiedElements<T>>(job, units, stream);
  });
}

}  // namespace syncfree::ssim
