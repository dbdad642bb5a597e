// What the launcher and the vector kernel of the gradient on the CPU share.
#pragma once

#include <cstdint>
#include <vector>

#include "ssim/ssim_backward_math.h"
#include "ssim/ssim_cpu.h"

namespace syncfree::ssim {

struct BackwardAxisPlan : BackwardAxis {
  std::int64_t piece = 1;       // pixels of a unit; the last one may have fewer
  std::vector<double> weights;  // of the window
  std::vector<double> turned;   // the same from behind, for the way back

  std::int64_t pieces() const { return (size + piece - 1) / piece; }
  Span pixels(std::int64_t index) const {
    return {index * piece, std::min(size, (index + 1) * piece)};
  }
};

// A unit is one piece of each axis of one plane. Units share nothing: each takes the windows that
// see its pixels from the images anew, so no result depends on the threads.
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
