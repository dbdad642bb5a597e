// Properties of CUDA devices that launchers need, read once for each of the first 64.
#pragma once

#include <cuda_runtime_api.h>

namespace syncfree {

struct DeviceInfo {
  int multiprocessors;
  int compute_capability;       // 90 for 9.0
  int shared_memory_per_block;  // what a kernel may opt in to, in bytes
  int code_architecture;        // whose code runs, which is less where PTX was compiled
};

// Reads those of the current device, which is `device`, unless they are known. Whoever launches
// asks for it first: plans made with different properties do not fit each other.
cudaError_t know_device(int device);

// Of the current device, which is known.
DeviceInfo current_device_info();

}  // namespace syncfree
