// What the launcher and the vector kernel of the CPU gradient share.
#pragma once

#include <cstdint>
#include <vector>

#include "ssim/ssim_backward_math.h"
#include "ssim/ssim_cpu.h"

namespace syncfree::ssim {

struct BackwardAxisPlan : BackwardAxis {
  std::int64_t piece = 1;       // pixels of a unit along this axis; the last one may have fewer
  std::vector<double> weights;  // of the window
  std::vector<double> turned;   // the weights reversed, for the way back from windows to pixels

  std::int64_t pieces() const { return (size + piece - 1) / piece; }
  Span pixels(std::int64_t index) const {
    return {index * piece, std::min(size, (index + 1) * piece)};
  }
};

// A unit is one piece of each axis of one plane. Units share no intermediate results: each
// recomputes all windows that cover its pixels, so no result depends on the number of threads.
struct BackwardPlan {
  const BackwardProblem* problem = nullptr;
  BackwardAxisPlan axes[3];
  Constants<double> constants;
  WindowShares shares;

  std::int64_t units_per_plane() const {
    return axes[kDepth].pieces() * axes[kHeight].pieces() * axes[kWidth].pieces();
  }
};

}  // namespace syncfree::ssim
