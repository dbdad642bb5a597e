// Sums whose order is fixed by the shape of the block, so that the same input gives the same bits.
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>

namespace syncfree {

// Valid in thread 0. May be called again without a barrier in between.
template <int kThreads>
__device__ double block_sum(double value) {
  using Reduce = cub::BlockReduce<double, kThreads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  __shared__ typename Reduce::TempStorage storage;
  __syncthreads();
  return Reduce(storage).Sum(value);
}

// Valid in lane 0.
__device__ inline double warp_sum(double value) {
  using Reduce = cub::WarpReduce<double>;
  typename Reduce::TempStorage storage;  // empty: the reduction goes through shuffles
  return Reduce(storage).Sum(value);
}

}  // namespace syncfree
