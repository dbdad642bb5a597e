// The device that launchers find: an H100 with few multiprocessors, so that a block has several
// pieces of work to do.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

// Of a block, in bytes: that of an H100, or as many KiB as CUDA_ON_CPU_SHARED_MEMORY says.
int shared_memory() {
  const char* wanted = std::getenv("CUDA_ON_CPU_SHARED_MEMORY");
  return (wanted != nullptr ? std::atoi(wanted) : 227) << 10;
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_memory();
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

}  // extern "C"
