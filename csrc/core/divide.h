// Division of indices.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree {

// For non-negative numbers. The 32-bit division is several times cheaper than the 64-bit one.
SYNCFREE_HD std::int64_t divide(std::int64_t number, std::int64_t divisor) {
  const auto a = static_cast<std::uint64_t>(number), b = static_cast<std::uint64_t>(divisor);
  if ((a | b) >> 32 == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return static_cast<std::int64_t>(a / b);
}

}  // namespace syncfree
