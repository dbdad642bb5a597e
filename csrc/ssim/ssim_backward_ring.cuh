// Gradients, and the mean value on the way, where a multiprocessor has 227 KiB of shared memory:
// each warp walks down a strip by itself, first of windows, as in the forward pass (RingWalk), to
// find what they pass back, and a row behind of pixels, to sum that up over the windows around
// each. Rows that wait for either stand in shared memory.
//
// Mirror images cost nothing, as in ssim_backward_strip.cuh.
#pragma once

#include "ssim/gradient_shares.h"
#include "ssim/ssim_backward_ring_walk.cuh"

namespace syncfree::ssim {

template <class Access, bool kErrors>
__global__ void __launch_bounds__(32, kGradientWarps)
    gradient_ring_kernel(const __grid_constant__ BackwardJob<float> job,
                         const __grid_constant__ GradientStrips strips,
                         const __grid_constant__ WalkResults results) {
  if constexpr (!kCompilesRingStrips) {
    __trap();  // an error, where nothing would be written
  } else {
    __shared__ GradientMemory<typename Access::Element> memory;
    GradientRing<Access, kErrors> ring(job, memory, results, job.current_constants());
    const GradientShares shares(job.planes, strips);
    std::int64_t unit = shares.begin(blockIdx.x, gridDim.x);
    const std::int64_t end = shares.begin(blockIdx.x + 1, gridDim.x);
    const int height = static_cast<int>(job.axes[1].size);
    const int width = static_cast<int>(job.axes[2].size);
    while (unit < end) {
      // Units of one warp that lie below each other are one piece.
      const std::int64_t strip = unit / strips.units, plane = strip / strips.strips;
      const int first = static_cast<int>(unit - strip * strips.units);
      const int count = static_cast<int>(min(std::int64_t{strips.units - first}, end - unit));
      const int of_plane = static_cast<int>(strip - plane * strips.strips);
      const auto left = [&](int i) { return i == 0 ? 0 : kMargin + i * strips.columns; };
      const int right = of_plane == strips.strips - 1 ? width : left(of_plane + 1);
      ring.run({plane, left(of_plane), right, first * kUnitRows,
                min((first + count) * kUnitRows, height)});
      unit += count;
    }
    if (results.totals != nullptr) WalkSum(results).hand_in(ring.totals());
  }
}

}  // namespace syncfree::ssim
