// What a warp of a walk keeps in shared memory, for registers are short.
#pragma once

#include "ssim/ssim_backward_walk_lanes.cuh"
#include "ssim/ssim_backward_walk_loss.cuh"
#include "ssim/ssim_backward_walk_terms.cuh"

namespace syncfree::ssim {

// A row of s or d of one warp. Lanes without a column of the halo write behind it.
inline constexpr int kWarpPitch = kWarpColumns + 2 * kMargin + 20;

// How pixels become s and d, the same in a warp.
struct alignas(8) PixelInputs {
  float scale;
  float level;  // taken off s
};

template <bool kValues>
struct ValueMemory {
  LaneTotals totals[32];
};

template <>
struct ValueMemory<false> {};

// Of one warp.
template <class T, bool kValues>
struct WindowMemory : ValueMemory<kValues> {
  alignas(16) float rows[4 * kWarpPitch];  // a pair, s before d in each
  LaneHistory history[32];
  LaneWeights weights[32];
  FormulaInputs formula;
  PixelInputs pixels;
  ErrorWeights<float> errors;
  WalkPlanes<T> planes;
};

}  // namespace syncfree::ssim
