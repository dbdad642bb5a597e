// Sums of the windows' terms, row by row down a strip, all in registers.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

// The partial sums of one plane of terms, as in WindowSums.
// Element k: over the last k + 1 rows.
class AdjointSums {
 public:
  static constexpr int kWindowColumns = kWalkColumns + 2 * GaussianWindow::kHalo;

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c)
#pragma unroll
      for (int k = 0; k < kLast; ++k) partial_[c][k] = 0.0f;
  }

  // Adds a row, and gives the sums of the outputs that it completes.
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

  // For sums of levels: makes them relative to a pivot that is `delta` larger.
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
