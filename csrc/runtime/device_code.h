// Two kernels of one thread each, as PTX that the driver compiles: no CUDA is needed to build them.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/cuda_driver.h"

namespace syncfree::runtime::cuda {

// What the stamp kernel writes into pinned memory; `serial` last, with release semantics.
struct Stamp {
  std::uint64_t nanoseconds;  // %globaltimer, which all SMs share
  std::uint64_t cycles;       // %clock64 of one SM
  std::uint32_t sm;
  std::atomic<std::uint32_t> serial;

  bool has_arrived(std::uint32_t expected) const {
    return serial.load(std::memory_order_acquire) == expected;
  }
};
static_assert(sizeof(Stamp) == 24 && alignof(Stamp) == 8);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Below this, %globaltimer is too coarse for a frequency: it ticks about once a microsecond.
inline constexpr std::uint64_t kLeastNanosecondsForMhz = 50'000;

// The effective clock between two stamps in MHz; NaN if they are too close together, or of
// different SMs, whose cycle counters are unrelated.
double effective_mhz(const Stamp& first, const Stamp& second);

class DeviceCode {
 public:
  // Loads the kernels into the current context.
  explicit DeviceCode(const Driver& driver);

  void spin(Stream stream, std::uint64_t nanoseconds) const;
  void stamp(Stream stream, DevicePointer out, std::uint32_t serial) const;

 private:
  const Driver& driver_;
  Function spin_ = nullptr;
  Function stamp_ = nullptr;
};

}  // namespace syncfree::runtime::cuda
