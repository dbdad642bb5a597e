// cub::BlockReduce with no more than its contract: only thread 0 gets the result, and the storage
// must not be reused before a barrier. The order of the sum differs from CUB's.
#pragma once

#include "device_language.h"

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_WARP_REDUCTIONS };

template <class T, int kThreads, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS>
class BlockReduce {
  static constexpr int kWarps = (kThreads + 31) / 32;

 public:
  struct TempStorage {
    T warp_result[kWarps];
  };

  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  template <class Op>
  T Reduce(T value, Op op, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    // CUB's lanes exchange these in registers, so they are not part of the storage.
    static char key;
    T* of_lane = cuda_on_cpu::shared_variable<T[kThreads]>(&key);
    of_lane[thread] = value;
    __syncwarp(~0u, site);
    if (thread % 32 == 0) {
      T result = value;
      for (int i = thread + 1; i < thread + 32 && i < kThreads; ++i)
        result = op(result, of_lane[i]);
      storage_.warp_result[warp] = result;
    }
    __syncwarp(~0u, site);
    __syncthreads(site);
    if (thread != 0) {
      std::memset(static_cast<void*>(&value), 0xEE, sizeof(value));
      return value;
    }
    value = storage_.warp_result[0];
    for (int i = 1; i < kWarps; ++i) {
      cuda_on_cpu::maybe_yield();
      value = op(value, storage_.warp_result[i]);
    }
    return value;
  }

  T Sum(T value, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return Reduce(value, [](const T& a, const T& b) { return a + b; }, site);
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
