// Errors about bad labels: raised at once on the CPU, and on CUDA when the host reads the record
// that a kernel left.
//
// Each metric has a slot, its index into the tables of error records (cuda_error_record.h), and
// each of its calls may have a number.
#pragma once

#include <cstdint>
#include <string>

#include "core/error_text.h"

namespace syncfree::ops {

// The slot of a metric and the number of a call, as packed into the options of an op. Slot 0 is
// that of functions; call 0 has no number.
struct ErrorOrigin {
  static constexpr int kSlotShift = 8, kSlotBits = 12;
  static constexpr std::int64_t kSlots = std::int64_t{1} << kSlotBits;

  std::int64_t slot = 0;
  std::int64_t call = 0;

  ErrorOrigin() = default;
  explicit ErrorOrigin(std::int64_t options)
      : slot(options >> kSlotShift & (kSlots - 1)), call(options >> (kSlotShift + kSlotBits)) {}
};

// The text that python/syncfree/_error_records.py replaces by the metric's name and the line of the
// call; empty if there is neither slot nor number.
std::string origin_mark(const ErrorOrigin& origin);

}  // namespace syncfree::ops
