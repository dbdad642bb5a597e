// csrc/core/device_info.cu over a runtime whose answers the test decides, for the host.
#include "core/device_info.cu"

namespace {

int current = 0, readings = 0;
bool fails_attributes = false, fails_code = false;
cudaError_t last_error = cudaSuccess;

cudaError_t result(bool fails) {
  if (fails) last_error = cudaErrorMemoryAllocation;
  return fails ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  constexpr int kValues[] = {100, 9, 0, 227 << 10};
  if (!fails_attributes) *value = kValues[attribute] + (attribute == 0 ? device : 0);
  return result(fails_attributes);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)()) {
  ++readings;
  if (!fails_code) attributes->ptxVersion = 90;
  return result(fails_code);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

extern "C" {

void set(int device, bool attributes, bool code) {
  current = device;
  fails_attributes = attributes;
  fails_code = code;
}
int know(int device) {
  return syncfree::know_device(device);
}
int multiprocessors() {
  return syncfree::current_device_info().multiprocessors;
}
int compute_capability() {
  return syncfree::current_device_info().compute_capability;
}
int shared_memory() {
  return syncfree::current_device_info().shared_memory_per_block;
}
int code_architecture() {
  return syncfree::current_device_info().code_architecture;
}
int times_read() {
  return readings;
}
bool has_error() {
  return cudaGetLastError() != cudaSuccess;
}
}
