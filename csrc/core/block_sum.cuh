// Sums whose order is fixed by the shape of the block, so that the same input gives the same bits.
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

// The same in all lanes. Not cub::WarpReduce, whose steps ask of each lane whether it has a partner
// and select by the answer, word by word of a double: five instructions, without moves, where these
// are three.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

}  // namespace syncfree
