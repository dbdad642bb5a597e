// Reads the properties of each device once and keeps them.
#include "core/device_info.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <mutex>

namespace syncfree {
namespace {

constexpr int kMaxDevices = 64;

// Compiled for the same architectures as all other kernels, it tells whose code runs.
__global__ void any_kernel() {}

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
  cudaError_t error() const { return error_; }  // the first one

 private:
  void read(int* value, cudaDeviceAttr attribute, int device) {
    check(cudaDeviceGetAttribute(value, attribute, device));
  }
  // The error is reported here; it is cleared so that no later launch reports it.
  void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    if (error_ == cudaSuccess) error_ = error;
    cudaGetLastError();
  }

  DeviceInfo info_ = {1, 0, 48 * 1024, 0};
  cudaError_t error_ = cudaSuccess;
};

// What was read, kept until the program ends.
std::array<DeviceInfo, kMaxDevices> known;
std::array<std::atomic<bool>, kMaxDevices> is_known;
std::mutex writing;

bool knows(int device) {
  return device < kMaxDevices && is_known[device].load(std::memory_order_acquire);
}

void keep(int device, const DeviceInfo& info) {
  if (device >= kMaxDevices) return;
  const std::lock_guard<std::mutex> lock(writing);
  if (knows(device)) return;
  known[device] = info;
  is_known[device].store(true, std::memory_order_release);
}

}  // namespace

cudaError_t know_device(int device) {
  if (knows(device)) [[likely]]
    return cudaSuccess;
  const Reading reading(device);
  if (reading.error() == cudaSuccess) keep(device, reading.info());
  return reading.error();
}

DeviceInfo current_device_info() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) cudaGetLastError();
  return knows(device) ? known[device] : Reading(device).info();
}

}  // namespace syncfree
