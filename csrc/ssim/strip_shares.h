// How walkers of a persistent grid share the units of all strips, which lie behind one another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

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

// How high units are: of all strips of an image, on a GPU whose schedulers have so many warps each.
// Warps take whole units, so their number decides how evenly an image is spread. It shall depend on
// the image alone, for the same bits in every batch: it suits one image and four of them, where 132
// multiprocessors have four schedulers each. Times are in half rows of a scheduler; while a warp
// waits for memory it has others.
inline int rows_of_unit(std::int64_t strips, std::int64_t height, int warps) {
  constexpr std::int64_t kSchedulers = 4 * 132;
  constexpr std::int64_t kHalo = 20;  // of a walk, whose first rows complete no window
  constexpr std::int64_t kEnd = 1;    // of a unit, whose sums are added up
  // Up to 58 rows, sums of squares over four columns are exact for bytes, the rows above included.
  // Beyond 48 units gained at most 3 % at single sizes (H200).
  constexpr int kLeast = 8, kMost = 48;
  const auto turns = [](std::int64_t units, std::int64_t takers) {
    return (units + takers - 1) / takers;
  };
  int best = kLeast;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int rows = kLeast; rows <= kMost; rows += 2) {
    const std::int64_t units = strips * turns(height, rows), of_unit = 2 * rows + kEnd;
    const auto time = [&](std::int64_t images) {
      const std::int64_t alone = turns(images * units, kSchedulers);
      if (alone <= warps) return alone * (of_unit + kHalo);
      return warps * (turns(images * units, kSchedulers * warps) * of_unit + kHalo);
    };
    if (const std::int64_t of_both = 4 * time(1) + time(4); of_both < least) {
      least = of_both;
      best = rows;
    }
  }
  return best;
}

}  // namespace syncfree::ssim
