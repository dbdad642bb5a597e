#include "runtime/host_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "runtime/own_call.h"

namespace syncfree::runtime {
namespace {

// CUpointer_attribute
enum Attribute : int { kMemoryType = 2, kIsManaged = 8, kRangeStart = 11, kRangeSize = 12 };

// CUmemorytype
constexpr std::uint64_t kHost = 1, kDevice = 2, kArray = 3;

// CU_STREAM_CAPTURE_MODE_RELAXED: what is asked here has nothing to do with a graph being captured.
constexpr int kRelaxed = 2;

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// The operating system copies a byte from the address, or fails if it cannot be read.
bool is_readable(std::uint64_t address) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const bool copied = write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return copied;
}

}  // namespace

HostMemory memory_kind(void* driver, void* context, std::uint64_t address, MemoryRange& range) {
  if (driver == nullptr || address == 0) return HostMemory::kUnknown;
  const auto push = find<int(void*)>(driver, "cuCtxPushCurrent_v2");
  const auto pop = find<int(void**)>(driver, "cuCtxPopCurrent_v2");
  const auto exchange = find<int(int*)>(driver, "cuThreadExchangeStreamCaptureMode");
  const auto ask =
      find<int(unsigned int, const int*, void**, std::uint64_t)>(driver, "cuPointerGetAttributes");
  if (push == nullptr || pop == nullptr || exchange == nullptr || ask == nullptr)
    return HostMemory::kUnknown;
  const OwnCall own;
  const bool is_current = context != nullptr && push(context) == 0;
  int mode = kRelaxed;
  exchange(&mode);
  constexpr int kAttributes[] = {kMemoryType, kIsManaged, kRangeStart, kRangeSize};
  std::uint64_t values[4] = {};  // the driver writes the lower bytes of the narrow ones
  void* places[4] = {&values[0], &values[1], &values[2], &values[3]};
  const int result = ask(4, kAttributes, places, address);
  exchange(&mode);
  void* popped = nullptr;
  if (is_current) pop(&popped);
  if (result != 0) return HostMemory::kUnknown;
  const std::uint64_t type = values[0] & 0xffffffff;
  if ((values[1] & 0xff) != 0) return HostMemory::kManaged;
  if (type == kDevice || type == kArray) return HostMemory::kDevice;
  if (type == kHost) {
    range = {values[2], values[3]};
    return HostMemory::kPinned;
  }
  return is_readable(address) ? HostMemory::kPageable : HostMemory::kUnknown;
}

}  // namespace syncfree::runtime
