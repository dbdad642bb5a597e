// Division of numbers below 2^31 by a divisor known at the launch, as a multiplication and a shift:
// with the factor ceil(2^p / d) and 2^(p - 31) >= d it is exact (Granlund and Montgomery, 1994).
// The compiler's division by a variable takes 25 instructions for 32 bits, 100 for 64.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree {

struct FastDivider {
  std::uint32_t divisor = 1;
  std::uint32_t factor = 1u << 31;
  std::uint32_t shift = 31;

  FastDivider() = default;
  SYNCFREE_HD explicit constexpr FastDivider(std::uint32_t by) : divisor(by), factor(), shift(31) {
    while ((std::uint64_t{1} << (shift - 31)) < divisor) ++shift;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + divisor - 1) / divisor);
  }

  SYNCFREE_HD constexpr std::uint32_t quotient(std::uint32_t of) const {
    return static_cast<std::uint32_t>(std::uint64_t{of} * factor >> shift);
  }
};

namespace detail {

constexpr bool divides_exactly(std::uint32_t by) {
  constexpr std::uint32_t kMost = INT32_MAX;
  const FastDivider divider(by);
  for (const std::uint32_t x :
       {0u, 1u, by - 1, by, by + 1, kMost / by * by - 1, kMost / by * by, kMost})
    if (x <= kMost && divider.quotient(x) != x / by) return false;
  return true;
}
static_assert(divides_exactly(1) && divides_exactly(2) && divides_exactly(3) && divides_exactly(7));
static_assert(divides_exactly(192) && divides_exactly(641) && divides_exactly(65536));
static_assert(divides_exactly(1000003) && divides_exactly(INT32_MAX) && divides_exactly(1u << 30));

}  // namespace detail

}  // namespace syncfree
