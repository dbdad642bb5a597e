// syncfree_device_name: names the device in reports.
#include <sys/utsname.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "api/arguments.h"
#include "api/driver_failure.h"
#include "runtime/own_call.h"

using namespace syncfree;
using namespace syncfree::api;

namespace {

// The model's name from /proc/cpuinfo, or else the architecture.
std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "CPU";
}

std::string gpu_name(std::int32_t index) {
  check_device_index(index);
  const runtime::OwnCall own;
  const runtime::cuda::Driver& driver = runtime::cuda::driver();
  int device = 0;
  char name[256] = "";
  driver.check(driver.device_get(&device, index), "cuDeviceGet");
  driver.check(driver.device_get_name(name, sizeof(name), device), "cuDeviceGetName");
  return name;
}

}  // namespace

syncfree_status_code syncfree_device_name(int32_t device_type, int32_t device_index, char* name,
                                          int64_t size) {
  return guarded_by_driver([&] {
    required("name", name);
    if (size < 1)
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected `size` to be at least 1, but got ", size, ".");
    check_choice("device_type", device_type, SYNCFREE_CUDA);
    const std::string found =
        device_type == SYNCFREE_CUDA ? gpu_name(device_index) : processor_name();
    name[found.copy(name, static_cast<std::size_t>(size) - 1)] = '\0';
  });
}
