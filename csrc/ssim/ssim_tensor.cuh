// Fast path on GPUs with TF32: a block of threads walks down a strip of 128 columns, eight rows at
// a time. Sums across a window are multiply-adds of a lane, sums down it are products on tensor
// cores: 18 instructions a pixel instead of 40. Not compiled before SYNCFREE_TENSOR_SSIM is
// defined, until it has been measured (docs/kernels/ssim.md).
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "ssim/pixel_types.h"
#include "ssim/ssim_strip.cuh"
#include "ssim/ssim_tensor_walk.cuh"

namespace syncfree::ssim {

inline constexpr int kTensorBlocksPerMultiprocessor = 3;  // 168 registers a thread

template <class Rows, StripTask kTask>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocksPerMultiprocessor)
    tensor_kernel(const __grid_constant__ Job<float> job,
                  const __grid_constant__ StripUnits units) {
  __shared__ TensorMemory memory;
  __shared__ Constants<float> constants;
  if (threadIdx.x == 0)
    constants = job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants;
  if (threadIdx.x < 32) memory.taps.fill();
  __syncthreads();
  const std::int64_t total = job.results.images * job.results.units_per_image;
  StripShare<false> share(units, total, blockIdx.x, gridDim.x);
  TensorWalk<Rows, kTask> walk(job, units, memory, constants);
  while (share.is_left()) {
    const int count = share.count();
    walk.run(share.first(), count);
    share.take(count);
  }
}

template <StripTask kTask>
cudaError_t launch_tensor_as(const Job<float>& job, cudaStream_t stream) {
  const StripUnits units = strip_units(job.geometry);
  const std::int64_t total = job.results.images * job.results.units_per_image;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(
      total, kTensorBlocksPerMultiprocessor * current_device_info().multiprocessors));
  dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    if (VectorRows<T>::apply(job.preds, job.target, job.geometry))
      tensor_kernel<VectorRows<T>, kTask><<<blocks, kTensorThreads, 0, stream>>>(job, units);
    else
      tensor_kernel<StridedRows<T>, kTask><<<blocks, kTensorThreads, 0, stream>>>(job, units);
  });
  return cudaGetLastError();
}

}  // namespace syncfree::ssim
