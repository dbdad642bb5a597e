// Properties of CUDA devices that launchers need, read once for each of the first 64.
#pragma once

#include <cuda_runtime_api.h>

namespace syncfree {

struct DeviceInfo {
  int multiprocessors;
  int compute_capability;       // 90 for 9.0
  int shared_memory_per_block;  // what a kernel may opt in to, in bytes
  int code_architecture;        // of the code that runs; lower where it was compiled from PTX
};

// Reads the properties of `device`, which is the current one, unless they are known. To be called
// before a launch is planned: plans made from different properties do not fit each other.
cudaError_t know_device(int device);

// The properties of the current device, after know_device.
DeviceInfo current_device_info();

}  // namespace syncfree
