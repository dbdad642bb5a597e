// How high the units are that strips are cut into.
#pragma once

#include <cstdint>
#include <limits>

namespace syncfree::ssim {

// Of all strips of an image, on a GPU whose schedulers have so many warps each. Warps take whole
// units, so their number decides how evenly an image is spread. It shall depend on the image alone,
// for the same bits in every batch: it suits one image and four of them, where 132 multiprocessors
// have four schedulers each. Times are in half rows of a scheduler; while a warp waits for memory
// it has others.
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
