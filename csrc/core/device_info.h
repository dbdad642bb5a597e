// Properties of the current CUDA device that launchers need, read once per device where reading them
// succeeds.
#pragma once

namespace syncfree {

struct DeviceInfo {
  int multiprocessors;
  int compute_capability;       // 90 for 9.0
  int shared_memory_per_block;  // what a kernel may opt in to, in bytes
  int code_architecture;        // whose code runs, which is less where PTX was compiled
};

DeviceInfo current_device_info();

}  // namespace syncfree
