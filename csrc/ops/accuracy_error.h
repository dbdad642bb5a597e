// What is said of bad labels: on CPU at once, on CUDA when the host reads a kernel's record.
#pragma once

#include <cstdint>
#include <string>

#include "core/error_text.h"

namespace syncfree::ops {

// A metric's place in the tables of error records and the number of the call, as they travel in the
// options of an op. Slot 0 and call 0 are those of functions.
struct ErrorOrigin {
  static constexpr int kSlotShift = 8, kSlotBits = 12;
  static constexpr std::int64_t kSlots = std::int64_t{1} << kSlotBits;

  std::int64_t slot = 0;
  std::int64_t call = 0;

  ErrorOrigin() = default;
  explicit ErrorOrigin(std::int64_t options)
      : slot(options >> kSlotShift & (kSlots - 1)), call(options >> (kSlotShift + kSlotBits)) {}
};

// What python/syncfree/_error_records.py replaces by the metric's name and the place of the call;
// empty if there is nothing to tell.
std::string origin_mark(const ErrorOrigin& origin);

}  // namespace syncfree::ops
