// Ring strips: the fast path of the Gaussian where each multiprocessor that runs the code has 132
// KiB of shared memory. A warp walks down a strip as in ssim_strip.cuh, but the horizontal sums of
// the last six rows wait in the ring, a ring buffer in shared memory. That leaves registers for a
// way down a column with fewer operations (ssim_ring_window.cuh).
#pragma once

#include "ssim/pixel_types.h"
#include "ssim/ssim_ring_walk.cuh"
#include "ssim/ssim_strip_grid.cuh"

namespace syncfree::ssim {

template <class Rows, StripTask kTask>
__global__ void __launch_bounds__(kStripThreads, kStripBlocksPerMultiprocessor)
    ring_strip_kernel(const __grid_constant__ Job<float> job,
                      const __grid_constant__ StripUnits units) {
  if constexpr (kCompilesRingStrips)
    walk_down_strips<RingWalk<Rows, kTask>>(job, units);
  else
    __trap();  // fails, instead of writing nothing
}

template <StripTask kTask>
cudaError_t launch_ring_strips_as(const Job<float>& job, const StripUnits& units,
                                  cudaStream_t stream) {
  const unsigned blocks = blocks_for_strips(job);
  return dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    // Two halo elements per lane: the compiler does not interleave across an exchange between
    // lanes.
    const auto kernel = VectorRows<T>::apply(job.preds, job.target, job.geometry)
                            ? ring_strip_kernel<VectorRows<T, 2>, kTask>
                            : ring_strip_kernel<StridedRows<T, 2>, kTask>;
    return launch_early(kernel, blocks, kStripThreads, 0, stream, job, units);
  });
}

}  // namespace syncfree::ssim
