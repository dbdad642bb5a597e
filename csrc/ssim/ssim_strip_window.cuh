// Window sums of one plane (s or d) as the rows of a strip go by, all in registers.
#pragma once

#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

SYNCFREE_HD constexpr double exp_series(double x) {
  double term = 1.0, sum = 1.0;
  for (int n = 1; n < 80; ++n) {
    term *= x / n;
    sum += term;
  }
  return sum;
}

// Gaussian taps as immediates, scaled so that the end taps are 1: the first tap of a sum is then a
// copy and the last an addition.
struct StripTaps {
  static constexpr int kTaps = 2 * kHalo + 1;
  static constexpr double kSigma = 1.5;

  float tap[kTaps];
  float partial[kTaps - 1];  // sum over a window row times the first k + 1 taps
  double row_sum;

  SYNCFREE_HD constexpr StripTaps() : tap(), partial(), row_sum(0.0) {
    for (int k = 0; k < kTaps; ++k) {
      const int offset = k - kHalo;
      const double distance = kHalo * kHalo - offset * offset;
      tap[k] = static_cast<float>(exp_series(distance / (2.0 * kSigma * kSigma)));
      row_sum += static_cast<double>(tap[k]);
    }
    double sum = 0.0;
    for (int k = 0; k < kTaps - 1; ++k) {
      sum += static_cast<double>(tap[k]);
      partial[k] = static_cast<float>(sum * row_sum);
    }
  }
};

// The lane's columns and the halo on both sides.
inline constexpr int kWindowColumns = kColumns + 2 * kHalo;

// E[x^2] - E[x]^2 cancels the digits of a smooth, bright window, so x is taken relative to a pivot.
// One pivot for a plane does not suit all parts of an image: each lane has its own, which moves as
// the rows go by, together with the sums that are under way.
class WindowSums {
 public:
  __device__ float pivot() const { return pivot_; }

  // From sums of w x and w x^2 to those of w (x - delta) and w (x - delta)^2.
  __device__ void move_pivot(float pivot) {
    constexpr StripTaps kTaps;
    const float delta = pivot - pivot_;
    pivot_ = pivot;
#pragma unroll
    for (int k = 0; k < StripTaps::kTaps - 1; ++k)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float halfway = fmaf(-0.5f * delta, kTaps.partial[k], sum_[c][k]);
        square_[c][k] = fmaf(-2.0f * delta, halfway, square_[c][k]);
        sum_[c][k] = fmaf(-delta, kTaps.partial[k], sum_[c][k]);
      }
  }

  // Takes in a row and gives out the sums of the window that ends with it. `x` is used up.
  // `has_pivot` may be false where the pivot is zero.
  __device__ void add_row(float (&x)[kWindowColumns], bool has_pivot, float (&sum)[kColumns],
                          float (&square)[kColumns]) {
    if (has_pivot) {
#pragma unroll
      for (int i = 0; i < kWindowColumns; ++i) x[i] = __fsub_rn(x[i], pivot_);
    }
    add(x, sum_, sum);
#pragma unroll
    for (int i = 0; i < kWindowColumns; ++i) x[i] = __fmul_rn(x[i], x[i]);
    add(x, square_, square);
  }

  __device__ void clear() {
    pivot_ = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int k = 0; k < StripTaps::kTaps - 1; ++k) sum_[c][k] = square_[c][k] = 0.0f;
  }

 private:
  // Element k: over the k + 1 rows that came last.
  using Partial = float[kColumns][StripTaps::kTaps - 1];

  static __device__ void add(const float (&x)[kWindowColumns], Partial& partial,
                             float (&complete)[kColumns]) {
    constexpr StripTaps kTaps;
    constexpr int kLast = StripTaps::kTaps - 1;
    float row[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) row[c] = x[c] + x[c + kLast];
#pragma unroll
    for (int k = 1; k < kLast; ++k)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) row[c] = fmaf(kTaps.tap[k], x[c + k], row[c]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) complete[c] = partial[c][kLast - 1] + row[c];
    // From the old end: each sum moves one place on as it grows, which costs no copies.
#pragma unroll
    for (int k = kLast - 1; k > 0; --k)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        partial[c][k] = fmaf(kTaps.tap[k], row[c], partial[c][k - 1]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) partial[c][0] = row[c];
  }

  Partial sum_;
  Partial square_;
  float pivot_;
};

}  // namespace syncfree::ssim
