// How the warps of a grid that computes gradients share the work.
//
// A strip is a range of columns of a plane, and a unit is a fixed number of its rows. Units are
// numbered down each strip, strip after strip and plane after plane; a share is a range of them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree::ssim {

// How planes are cut: into strips of `columns`, of which the first and the last may be a margin
// wider, and each strip into `units` of `rows_of_unit`.
struct GradientStrips {
  int strips;  // at least two
  int columns;
  int units;  // down a strip
  int rows_of_unit;
};

// Shares that take equal time, as measured for warps: a warp that starts in a strip first processes
// rows that complete no output and waits for memory (kRowsOfABeginning), and a row of a strip at an
// edge of the image takes longer, since it must be mirrored.
class GradientShares {
 public:
  explicit SYNCFREE_HD GradientShares(std::int64_t planes, const GradientStrips& strips)
      : strips_(strips),
        total_(planes * strips.strips * strips.units),
        rows_(kRowsOfABeginning + std::int64_t{strips.units} * strips.rows_of_unit),
        edge_(rows_ * kTimeOfRowAtEdge),
        inside_(rows_ * kTimeOfRow * (strips.strips - 2)),
        time_of_plane_(2 * edge_ + inside_),
        time_(planes * time_of_plane_) {}

  // The first unit of the share of warp `walker`.
  SYNCFREE_HD std::int64_t begin(std::int64_t walker, std::int64_t walkers) const {
    // With few units, rounding to whole ones costs more than this corrects.
    if (total_ < 32 * walkers) return total_ * walker / walkers;
    std::int64_t time = time_ * walker / walkers;
    const std::int64_t plane = time / time_of_plane_;
    time -= plane * time_of_plane_;
    std::int64_t strip = 0, row = 0;
    if (time < edge_) {
      row = time / kTimeOfRowAtEdge;
    } else if (time < edge_ + inside_) {
      time -= edge_;
      strip = 1 + time / (rows_ * kTimeOfRow);
      row = time % (rows_ * kTimeOfRow) / kTimeOfRow;
    } else {
      strip = strips_.strips - 1;
      row = (time - edge_ - inside_) / kTimeOfRowAtEdge;
    }
    const std::int64_t below = row - kRowsOfABeginning;
    return (plane * strips_.strips + strip) * strips_.units +
           (below > 0 ? below / strips_.rows_of_unit : 0);
  }

 private:
  static constexpr std::int64_t kTimeOfRow = 20;
  static constexpr std::int64_t kTimeOfRowAtEdge = 22;
  static constexpr std::int64_t kRowsOfABeginning = 28;

  GradientStrips strips_;
  std::int64_t total_;   // units
  std::int64_t rows_;    // of a strip, including those that count for its beginning
  std::int64_t edge_;    // time of a strip at an edge of the image
  std::int64_t inside_;  // time of all other strips of a plane
  std::int64_t time_of_plane_;
  std::int64_t time_;
};

}  // namespace syncfree::ssim
