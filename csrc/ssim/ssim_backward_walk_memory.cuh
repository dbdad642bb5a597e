// What a warp of the walk path keeps in shared memory, since registers are scarce.
#pragma once

#include "ssim/ssim_backward_walk_lanes.cuh"
#include "ssim/ssim_backward_walk_loss.cuh"
#include "ssim/ssim_backward_walk_terms.cuh"

namespace syncfree::ssim {

// Floats of a row of s or d of one warp. Lanes without a column of the halo write behind the halo.
inline constexpr int kWarpPitch = kWarpColumns + 2 * kMargin + 20;

// Inputs of the conversion from pixels to s and d, uniform in a warp.
struct alignas(8) WalkPixelInputs {
  float scale;
  float level;  // subtracted from s
};

template <bool kValues>
struct ValueMemory {
  LaneTotals totals[32];
};

template <>
struct ValueMemory<false> {};

// All of it, for one warp.
template <class T, bool kValues>
struct WindowMemory : ValueMemory<kValues> {
  alignas(16) float rows[4 * kWarpPitch];  // a pair, s before d in each
  LaneHistory history[32];
  LaneWeights weights[32];
  FormulaInputs formula;
  WalkPixelInputs pixels;
  ErrorWeights<float> errors;
  WalkPlanes<T> planes;
};

}  // namespace syncfree::ssim
