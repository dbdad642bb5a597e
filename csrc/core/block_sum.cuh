// Sums in an order that the shape of the block fixes, so that the same input gives the same bits.
#pragma once

#include <cub/block/block_reduce.cuh>

namespace syncfree {

// Valid in thread 0. May be called again without a barrier in between.
template <int kThreads>
__device__ double block_sum(double value) {
  using Reduce = cub::BlockReduce<double, kThreads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  __shared__ typename Reduce::TempStorage storage;
  __syncthreads();
  return Reduce(storage).Sum(value);
}

// The sum over a warp, in all lanes. Not cub::WarpReduce: in each step it asks whether the lane has
// a partner and selects by the answer, for each word of a double. That takes five instructions, not
// counting moves; these are three.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

}  // namespace syncfree
