// Strips, the fast path: one warp walks down a strip of 128 columns, of which each lane owns four.
//
// Rows of s and d pass through shared memory once, so that each lane sees its neighbors' columns;
// everything else lives in registers. Rows enter in pairs. A row that enters completes the windows,
// and so the outputs, of the row kHalo above it; the first rows of a walk complete none.
//
// Terms: a unit is a run of rows of one strip whose sums are reduced together (rows_of_unit.h). A
// walk covers consecutive units of one strip. A share is what one warp of the persistent grid walks
// over (strip_shares.h). Variances are computed about pivots, values close to the pixels that are
// subtracted first (ssim_strip_window.cuh). A level is a mean of pixels: that of the strip is
// always subtracted from s, and those of pairs of rows become pivots (ssim_strip_levels.cuh).
#pragma once

#include "ssim/pixel_types.h"
#include "ssim/ssim_strip_grid.cuh"
#include "ssim/ssim_strip_walk.cuh"

namespace syncfree::ssim {

template <class Rows, StripTask kTask, class Taps>
__global__ void __launch_bounds__(kStripThreads, kStripBlocksPerMultiprocessor)
    strip_kernel(const __grid_constant__ Job<float> job, const __grid_constant__ StripUnits units) {
  if constexpr (Taps::kUniform || kCompilesStrips)
    walk_down_strips<StripWalk<Rows, kTask, Taps>>(job, units);
  else
    __trap();  // fails, instead of writing nothing
}

template <StripTask kTask, class Taps>
cudaError_t launch_strips_as(const Job<float>& job, const StripUnits& units, cudaStream_t stream) {
  const unsigned blocks = blocks_for_strips(job);
  return dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    const auto kernel = VectorRows<T>::apply(job.preds, job.target, job.geometry)
                            ? strip_kernel<VectorRows<T>, kTask, Taps>
                            : strip_kernel<StridedRows<T>, kTask, Taps>;
    return launch_early(kernel, blocks, kStripThreads, 0, stream, job, units);
  });
}

}  // namespace syncfree::ssim
