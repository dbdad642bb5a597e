// Errors in the input that a kernel finds but must not raise: the host reads their record later,
// without waiting for the device.
#pragma once

#include <cstdint>

namespace syncfree {

enum class ErrorKind : std::int64_t {
  kNone = 0,
  kTargetOutOfRange = 1,
  kPredsOutOfRange = 2,
};

// The bad labels of one call.
struct ErrorRecord {
  ErrorKind kind = ErrorKind::kNone;
  std::int64_t first_index = 0;
  std::int64_t first_value = 0;
  std::int64_t count = 0;
  std::int64_t call = 0;  // the caller's number of this call
  // What is allowed: 0 to classes - 1, and `ignore_index` where there is one.
  std::int64_t classes = 0;
  std::int64_t ignore_index = 0;
  std::int32_t has_ignore_index = 0;
  std::int32_t is_integer = 1;  // 0: the first value is NaN, a fraction or beyond int64
};

// Holds one record of a device, in mapped pinned memory: kernels on several streams may want to
// publish at once, and the host may look at any time. The first kernel to claim the slot writes its
// record; until the host has taken that one, further calls only add to `more`. Atomics on mapped
// memory hold among the threads of the device only, hence each number is written by one side alone.
struct alignas(128) ErrorSlot {
  ErrorRecord record;
  // Written by kernels: records claimed, records complete, bad labels without a record.
  unsigned long long claimed = 0;
  unsigned long long published = 0;
  unsigned long long more = 0;
  // Written by the host: how far it has read.
  unsigned long long taken = 0;
  unsigned long long more_taken = 0;
};

#if defined(__CUDACC__)

__device__ inline void publish(ErrorSlot* slot, const ErrorRecord& record) {
  volatile ErrorSlot* memory = slot;
  const unsigned long long taken = memory->taken;
  if (atomicCAS(&slot->claimed, taken, taken + 1) != taken) {
    atomicAdd(&slot->more, static_cast<unsigned long long>(record.count));
    return;
  }
  const auto* from = reinterpret_cast<const std::int64_t*>(&record);
  auto* to = reinterpret_cast<volatile std::int64_t*>(&slot->record);
  for (unsigned int i = 0; i < sizeof(ErrorRecord) / sizeof(std::int64_t); ++i) to[i] = from[i];
  __threadfence_system();
  memory->published = taken + 1;
}

#endif

}  // namespace syncfree
