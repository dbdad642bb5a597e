// Cached device properties.
#include "core/device_info.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <mutex>

namespace syncfree {
namespace {

constexpr int kMaxDevices = 64;

// Of the architecture that all kernels are compiled for.
__global__ void any_kernel() {}

// What cannot be read keeps a value that is on the safe side. Errors are the next launch's to tell.
class Reading {
 public:
  explicit Reading(int device) {
    int major = 0, minor = 0;
    read(&info_.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    read(&major, cudaDevAttrComputeCapabilityMajor, device);
    read(&minor, cudaDevAttrComputeCapabilityMinor, device);
    read(&info_.shared_memory_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    info_.compute_capability = 10 * major + minor;
    cudaFuncAttributes code = {};
    check(cudaFuncGetAttributes(&code, any_kernel));
    info_.code_architecture = code.ptxVersion;
  }

  const DeviceInfo& info() const { return info_; }
  bool is_complete() const { return is_complete_; }

 private:
  void read(int* value, cudaDeviceAttr attribute, int device) {
    check(cudaDeviceGetAttribute(value, attribute, device));
  }
  void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    is_complete_ = false;
    cudaGetLastError();
  }

  DeviceInfo info_ = {1, 0, 48 * 1024, 0};
  bool is_complete_ = true;
};

}  // namespace

DeviceInfo current_device_info() {
  static std::array<DeviceInfo, kMaxDevices> known;
  static std::array<std::atomic<bool>, kMaxDevices> is_known;
  static std::mutex writing;
  int device = 0;
  cudaGetDevice(&device);
  const bool is_kept = device < kMaxDevices;
  if (is_kept && is_known[device].load(std::memory_order_acquire)) return known[device];
  const Reading reading(device);
  if (is_kept && reading.is_complete()) {
    const std::lock_guard<std::mutex> lock(writing);
    if (!is_known[device].load(std::memory_order_relaxed)) known[device] = reading.info();
    is_known[device].store(true, std::memory_order_release);
  }
  return reading.info();
}

}  // namespace syncfree
