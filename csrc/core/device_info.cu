// Cached device properties.
#include "core/device_info.h"

#include <cuda_runtime.h>

#include <array>
#include <mutex>

namespace syncfree {
namespace {

constexpr int kMaxDevices = 64;

// Of the architecture that all kernels are compiled for.
__global__ void any_kernel() {}

DeviceInfo read_device_info(int device) {
  int multiprocessors = 1, major = 0, minor = 0, shared = 48 * 1024;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncAttributes code = {};
  if (cudaFuncGetAttributes(&code, any_kernel) != cudaSuccess) cudaGetLastError();
  return {multiprocessors, 10 * major + minor, shared, code.ptxVersion};
}

}  // namespace

const DeviceInfo& current_device_info() {
  static std::array<DeviceInfo, kMaxDevices> info;
  static std::array<std::once_flag, kMaxDevices> read;
  int device = 0;
  cudaGetDevice(&device);
  std::call_once(read[device], [&] { info[device] = read_device_info(device); });
  return info[device];
}

}  // namespace syncfree
