// Fast path: one warp walks down a strip of 128 columns, a lane owns four of them.
//
// Rows of s and d pass through shared memory once, so that each lane sees its neighbours' columns;
// everything else lives in registers.
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
    __trap();  // an error, where nothing would be written
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
