// What kind of memory an address is in: asked of the driver, outside of its callbacks.
#pragma once

#include <cstdint>

#include "runtime/call_log.h"

namespace syncfree::runtime {

struct MemoryRange {
  std::uint64_t begin = 0, bytes = 0;  // zero where the driver does not say
};

// `driver` is a handle of dlopen, `context` that of the call which used the address. Memory that
// the driver does not know is pageable if it is the host's, and only as long as it is there can
// that be told: what cannot be read is unknown.
HostMemory memory_kind(void* driver, void* context, std::uint64_t address, MemoryRange& range);

}  // namespace syncfree::runtime
