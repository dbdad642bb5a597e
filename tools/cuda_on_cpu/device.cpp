// The device that launchers see: an H100 with few multiprocessors, so that a block has several
// pieces of work to do. Environment variables may choose another.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

int from_environment(const char* name, int otherwise) {
  const char* wanted = std::getenv(name);
  return wanted != nullptr ? std::atoi(wanted) : otherwise;
}

int architecture() {
  return from_environment("CUDA_ON_CPU_ARCHITECTURE", 90);
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
      *value = from_environment("CUDA_ON_CPU_MULTIPROCESSORS", 4);
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = architecture() / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = architecture() % 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = from_environment("CUDA_ON_CPU_SHARED_MEMORY", 227) << 10;  // in KiB
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
