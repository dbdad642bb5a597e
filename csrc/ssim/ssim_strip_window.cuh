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

// Over a whole window.
inline constexpr float kTapSum = static_cast<float>(StripTaps{}.row_sum * StripTaps{}.row_sum);

// The lane's columns and the halo on both sides.
inline constexpr int kWindowColumns = kColumns + 2 * kHalo;

// E[x^2] - E[x]^2 cancels the digits of a smooth, bright window, so x is taken relative to a pivot.
// One pivot for a plane does not suit all parts of an image: each lane has its own, which follows
// the rows, together with the sums that are under way.
//
// No single pivot suits all sums. Those of windows that have just begun hold the newest rows; where
// a window is nearly complete, its newest rows may lie beyond an edge that hardly counts in it. So
// young sums are about the level of the newest rows and old ones about that of four rows before.
class WindowSums {
 public:
  // Of the windows that are about to be complete.
  __device__ float pivot() const { return old_pivot_; }

  __device__ bool would_move(float young, float old) const {
    return young != young_pivot_ || old != old_pivot_;
  }

  __device__ void move_pivots(float young, float old) {
    move<0, kOld>(young - young_pivot_);
    move<kOld, kLast>(old - old_pivot_);
    young_pivot_ = young;
    old_pivot_ = old;
  }

  // Takes in a row and gives out the sums of the window that ends with it. `x` is used up.
  // `has_pivot` may be false where both pivots are zero.
  __device__ void add_row(float (&x)[kWindowColumns], bool has_pivot, float (&sum)[kColumns],
                          float (&square)[kColumns]) {
    float row_sum[kColumns], row_square[kColumns];
    if (has_pivot) {
#pragma unroll
      for (int i = 0; i < kWindowColumns; ++i) x[i] = __fsub_rn(x[i], young_pivot_);
    }
    filter(x, row_sum);
#pragma unroll
    for (int i = 0; i < kWindowColumns; ++i) x[i] = __fmul_rn(x[i], x[i]);
    filter(x, row_square);

    const float delta = old_pivot_ - young_pivot_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      Moments row{row_sum[c], row_square[c]};
      Moments grown{sum_[c][kOld - 1], square_[c][kOld - 1]};
      if (has_pivot) {
        row = about(row, delta, 0);
        grown = about(grown, delta, kOld - 1);
      }
      sum[c] = advance(sum_[c], row_sum[c], row.sum, grown.sum);
      square[c] = advance(square_[c], row_square[c], row.square, grown.square);
    }
  }

  __device__ void clear() {
    young_pivot_ = old_pivot_ = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int k = 0; k < kLast; ++k) sum_[c][k] = square_[c][k] = 0.0f;
  }

 private:
  static constexpr int kLast = StripTaps::kTaps - 1;
  static constexpr int kOld = 7;  // sums over more rows than this are old

  // Element k: over the k + 1 rows that came last.
  using Partial = float[kColumns][kLast];

  struct Moments {
    float sum;
    float square;
  };

  // From sums of w x and w x^2 over the first k + 1 rows to those of w (x - delta), w (x -
  // delta)^2.
  static __device__ Moments about(const Moments& m, float delta, int k) {
    constexpr StripTaps kTaps;
    const float halfway = fmaf(-0.5f * delta, kTaps.partial[k], m.sum);
    return {fmaf(-delta, kTaps.partial[k], m.sum), fmaf(-2.0f * delta, halfway, m.square)};
  }

  template <int kFrom, int kTo>
  __device__ void move(float delta) {
#pragma unroll
    for (int k = kFrom; k < kTo; ++k)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const Moments moved = about({sum_[c][k], square_[c][k]}, delta, k);
        sum_[c][k] = moved.sum;
        square_[c][k] = moved.square;
      }
  }

  static __device__ void filter(const float (&x)[kWindowColumns], float (&row)[kColumns]) {
    constexpr StripTaps kTaps;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) row[c] = x[c] + x[c + kLast];
#pragma unroll
    for (int k = 1; k < kLast; ++k)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) row[c] = fmaf(kTaps.tap[k], x[c + k], row[c]);
  }

  // From the old end: each sum moves one place on as it grows, which costs no copies.
  static __device__ float advance(float (&partial)[kLast], float young_row, float old_row,
                                  float grown) {
    constexpr StripTaps kTaps;
    const float complete = partial[kLast - 1] + old_row;
#pragma unroll
    for (int k = kLast - 1; k > kOld; --k) partial[k] = fmaf(kTaps.tap[k], old_row, partial[k - 1]);
    partial[kOld] = fmaf(kTaps.tap[kOld], old_row, grown);
#pragma unroll
    for (int k = kOld - 1; k > 0; --k) partial[k] = fmaf(kTaps.tap[k], young_row, partial[k - 1]);
    partial[0] = young_row;
    return complete;
  }

  Partial sum_;
  Partial square_;
  float young_pivot_;
  float old_pivot_;
};

}  // namespace syncfree::ssim
