// Asks the driver, outside of its callbacks, what kind of memory an address is in.
#pragma once

#include <cstdint>

#include "runtime/call_log.h"

namespace syncfree::runtime {

struct MemoryRange {
  std::uint64_t begin = 0, bytes = 0;  // zero where the driver does not say
};

// `driver` is a handle of dlopen, `context` the context of the call that used the address. Memory
// that the driver does not know is pageable if it is host memory. That can be told only while it
// exists: an address that cannot be read is unknown.
HostMemory memory_kind(void* driver, void* context, std::uint64_t address, MemoryRange& range);

}  // namespace syncfree::runtime
