// Sums of what windows pass back as their rows go by, all in registers.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

// Of one plane of terms, over the rows under way; as WindowSums. Element k: over the k + 1 rows
// that came last.
class AdjointSums {
 public:
  static constexpr int kWindowColumns = kWalkColumns + 2 * GaussianWindow::kHalo;

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c)
#pragma unroll
      for (int k = 0; k < kLast; ++k) partial_[c][k] = 0.0f;
  }

  // Takes in a row and gives out the sums of the outputs that end with it.
  __device__ void add_row(const float (&x)[kWindowColumns], float (&complete)[kWalkColumns]) {
    constexpr GaussianWindow kTaps;
    float row[kWalkColumns];
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) row[c] = x[c] + x[c + kLast];
#pragma unroll
    for (int k = 1; k < kLast; ++k)
#pragma unroll
      for (int c = 0; c < kWalkColumns; ++c) row[c] = fmaf(kTaps.tap[k], x[c + k], row[c]);
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      float (&partial)[kLast] = partial_[c];
      complete[c] = partial[kLast - 1] + row[c];
#pragma unroll
      for (int k = kLast - 1; k > 0; --k) partial[k] = fmaf(kTaps.tap[k], row[c], partial[k - 1]);
      partial[0] = row[c];
    }
  }

  // These are levels; makes them those at a pivot that lies `delta` further.
  __device__ void move(const AdjointSums& slopes, float delta) {
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c)
#pragma unroll
      for (int k = 0; k < kLast; ++k)
        partial_[c][k] = fmaf(slopes.partial_[c][k], delta, partial_[c][k]);
  }

 private:
  static constexpr int kLast = GaussianWindow::kTaps - 1;

  float partial_[kWalkColumns][kLast];
};

}  // namespace syncfree::ssim
