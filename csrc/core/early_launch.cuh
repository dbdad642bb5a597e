// Programmatic dependent launch: the blocks of a kernel become resident while the kernel ahead of
// it on the stream, whoever launched that, still runs. This hides the kernel's launch and the first
// fetch of its code, about a microsecond, and the launch takes the host 0.7 us less. The kernel
// waits where it needs what the kernel ahead writes.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "core/device_info.h"

namespace syncfree {

// For the kernel ahead: the next kernel may start once every block has called it or ended.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// For the dependent kernel, before its first access to memory: returns once the kernel ahead has
// ended. Loads after it must be plain ones: __ldg requires memory that does not change while the
// kernel runs, which includes the wait, and the compiler may hoist it above the wait.
__device__ inline void wait_for_kernel_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Launches a kernel that calls `wait_for_kernel_ahead`. Where the device, or the code that it runs,
// does not support programmatic dependent launch, this is an ordinary launch in stream order.
template <class... P>
cudaError_t launch_early(void (*kernel)(P...), unsigned int blocks, unsigned int threads,
                         std::size_t shared_bytes, cudaStream_t stream,
                         const std::type_identity_t<P>&... parameters) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const unsigned int attributes = current_device_info().code_architecture >= 90 ? 1 : 0;
  const cudaLaunchConfig_t config = {dim3(blocks), dim3(threads), shared_bytes,
                                     stream,       &early,        attributes};
  return cudaLaunchKernelEx(&config, kernel, parameters...);
}

}  // namespace syncfree
