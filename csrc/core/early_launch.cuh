// Programmatic dependent launch: a kernel whose blocks take their places while the kernel ahead of
// it on the stream still runs. That hides its launch and the first fetch of its code; it waits
// where it needs what the kernel ahead writes.
#pragma once

#include <cuda_runtime.h>

#include "core/device_info.h"

namespace syncfree {

// In the kernel ahead: once every block has called it or ended, the next kernel may start.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// In the kernel behind, before its first access to memory: the kernel ahead has ended.
__device__ inline void wait_for_kernel_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Of a kernel that calls `wait_for_kernel_ahead`; in the stream's order where the device or the
// code it runs knows no other.
template <class Job>
cudaError_t launch_early(void (*kernel)(Job), unsigned int blocks, unsigned int threads,
                         cudaStream_t stream, const Job& job) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const unsigned int attributes = current_device_info().code_architecture >= 90 ? 1 : 0;
  const cudaLaunchConfig_t config = {dim3(blocks), dim3(threads), 0, stream, &early, attributes};
  return cudaLaunchKernelEx(&config, kernel, job);
}

}  // namespace syncfree
