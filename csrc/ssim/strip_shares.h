// How walkers of a persistent grid share the units of all strips, which lie behind one another.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree::ssim {

// A walk down part of a strip begins with rows above it, and waits for memory: about so many rows.
inline constexpr int kRowsOfABeginning = 40;

// Where the share of a walker begins, of whole strips: even shares of time, in which each strip
// begins with rows that give nothing.
SYNCFREE_HD std::int64_t begin_of_share(std::int64_t total, std::int64_t units_of_strip,
                                        int rows_of_unit, std::int64_t walker,
                                        std::int64_t walkers) {
  // Rounded to whole units, shares of time differ by two of these, even shares by one: of few units
  // that is more than what they correct.
  if (total < 32 * walkers) return total * walker / walkers;
  const std::int64_t rows = kRowsOfABeginning + units_of_strip * rows_of_unit;
  const std::int64_t row = total / units_of_strip * rows * walker / walkers;
  const std::int64_t strip = row / rows;
  const std::int64_t below = row - strip * rows - kRowsOfABeginning;
  return strip * units_of_strip + (below > 0 ? below / rows_of_unit : 0);
}

}  // namespace syncfree::ssim
