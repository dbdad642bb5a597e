// The height of the units into which strips are cut (ssim_strip.cuh).
#pragma once

#include <cstdint>
#include <limits>

namespace syncfree::ssim {

// Rows of a unit, for all strips of an image on a GPU that runs `warps` warps per scheduler. Warps
// take whole units, so the number of units decides how evenly an image is spread. The height may
// depend on the image's size alone, so that results have the same bits in every batch. It minimizes
// the estimated time of one image and of a batch of four on 132 multiprocessors with four
// schedulers each. Times are in half rows that a scheduler issues; while one warp waits for memory,
// it issues from others.
inline int rows_of_unit(std::int64_t strips, std::int64_t height, int warps) {
  constexpr std::int64_t kSchedulers = 4 * 132;
  constexpr std::int64_t kHalo = 20;  // start of a walk: rows that complete no window
  constexpr std::int64_t kEnd = 1;    // end of a unit: its sums are reduced
  // Up to 58 rows, a lane's sums of squares over its four columns are exact for bytes, even with
  // the rows above the unit. More than 48 gained at most 3 %, at single sizes (H200).
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
