// Ring path of the gradient, which can also give the mean value, for multiprocessors with 227 KiB
// of shared memory. Each warp walks down a strip by itself. For each row it adds up a row of
// windows, as in the forward pass (RingWalk), and finds their terms; one row behind, it sums the
// terms of the windows around each pixel.
//
// The path is named after its ring buffer in shared memory, which holds the last six rows of sums
// along a row, of moments and of terms. The rows of that buffer are called lines.
//
// Mirrored borders are handled as in ssim_backward_strip.cuh.
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
    __trap();  // better an error than a launch that writes nothing
  } else {
    __shared__ GradientMemory<typename Access::Element> memory;
    GradientRing<Access, kErrors> ring(job, memory, results, job.current_constants());
    const GradientShares shares(job.planes, strips);
    const int height = static_cast<int>(job.axes[1].size);
    const int width = static_cast<int>(job.axes[2].size);
    const auto left = [&](int strip) { return strip == 0 ? 0 : kMargin + strip * strips.columns; };
    for_each_piece(strips, height, shares.begin(blockIdx.x, gridDim.x),
                   shares.begin(blockIdx.x + 1, gridDim.x),
                   [&](std::int64_t plane, int strip, int top, int end) {
                     const int right = strip == strips.strips - 1 ? width : left(strip + 1);
                     ring.run({plane, left(strip), right, top, end});
                   });
    if (results.totals != nullptr) WalkSum(results).hand_in(ring.totals());
  }
}

}  // namespace syncfree::ssim
