// Asynchronous copies from global to shared memory (cp.async, compute capability 8.0 and later),
// which take no registers. A thread commits its copies in groups and waits for whole groups.
#pragma once

namespace syncfree {

__device__ inline void commit_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the latest `kLeft` groups of this thread have arrived.
template <int kLeft>
__device__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace syncfree
