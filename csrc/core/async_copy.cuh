// Copies from global to shared memory that take no registers on their way (compute capability 8.0
// and later). They are waited for in the groups that they were committed in.
#pragma once

namespace syncfree {

__device__ inline void commit_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until all but the latest `kLeft` groups of this thread have come.
template <int kLeft>
__device__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace syncfree
