// How the warps of a persistent grid share the units of all strips. Units are numbered down one
// strip after the other; the share of a warp (a walker) is a contiguous range of them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree::ssim {

// What it costs to begin a walk down part of a strip, in rows: it takes rows above that part, and
// waits for memory.
inline constexpr int kRowsOfABeginning = 40;

// First unit of a walker's share of `total` units, which form whole strips. Shares are even in
// time, where each strip costs kRowsOfABeginning rows in addition to its own.
SYNCFREE_HD std::int64_t begin_of_share(std::int64_t total, std::int64_t units_of_strip,
                                        int rows_of_unit, std::int64_t walker,
                                        std::int64_t walkers) {
  // Rounded to whole units, shares of even time differ by up to two units, shares of even numbers
  // of units by one. With few units that costs more than even time gains.
  if (total < 32 * walkers) return total * walker / walkers;
  const std::int64_t rows = kRowsOfABeginning + units_of_strip * rows_of_unit;
  const std::int64_t row = total / units_of_strip * rows * walker / walkers;
  const std::int64_t strip = row / rows;
  const std::int64_t below = row - strip * rows - kRowsOfABeginning;
  return strip * units_of_strip + (below > 0 ? below / rows_of_unit : 0);
}

}  // namespace syncfree::ssim
