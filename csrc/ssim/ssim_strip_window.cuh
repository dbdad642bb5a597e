// Window sums of one plane (s or d) as the rows of a strip enter, all in registers.
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

// Taps as immediates, scaled so that the end taps are 1: the first tap of a sum is then a copy and
// the last an addition. The taps of a uniform window are all 1.
//
// A variance is the sum of all weights, as a float, times the sum of squares, less the square of
// the sum. With the taps of the Gaussian rounded to nearest that float is up to 3e-8 off, so as
// much of each window's squared level would be in its variance, always with the same sign. It moved
// means of photographs by 1e-6. With tap kMoved and its twin one float higher (kBy 1) or lower (-1)
// the float is within 6e-10.
template <int kCount, bool kIsUniform, int kMoved = 3, int kBy = 1>
struct StripTaps {
  static constexpr int kTaps = kCount;
  static constexpr int kHalo = kTaps / 2;
  static constexpr bool kUniform = kIsUniform;
  static constexpr double kSigma = kUniform ? 0.0 : 1.5;

  float tap[kTaps];
  float partial[kTaps - 1];  // row_sum times the sum of the first k + 1 taps
  double row_sum;

  SYNCFREE_HD constexpr StripTaps() : tap(), partial(), row_sum(0.0) {
    for (int k = 0; k < kTaps; ++k) {
      const int offset = k - kHalo;
      const double distance = kHalo * kHalo - offset * offset;
      const double exact = kUniform ? 1.0 : exp_series(distance / (2.0 * kSigma * kSigma));
      const bool is_moved = !kUniform && (k == kMoved || k == kTaps - 1 - kMoved);
      tap[k] = static_cast<float>(is_moved ? exact * (1.0 + kBy * 0x1p-24) : exact);
      row_sum += static_cast<double>(tap[k]);
    }
    double sum = 0.0;
    for (int k = 0; k < kTaps - 1; ++k) {
      sum += static_cast<double>(tap[k]);
      partial[k] = static_cast<float>(sum * row_sum);
    }
  }
};

using GaussianWindow = StripTaps<11, false>;
using UniformWindow = StripTaps<7, true>;

// The sum of all weights of the window.
template <class Taps>
inline constexpr double kTapSumOf = Taps{}.row_sum * Taps{}.row_sum;

constexpr bool is_nearly_a_float(double x) {
  const double error = static_cast<double>(static_cast<float>(x)) / x - 1.0;
  return error < 1e-9 && error > -1e-9;
}

static_assert(is_nearly_a_float(kTapSumOf<GaussianWindow>));

// Pivots are subtracted from x before it is summed and squared: sums are then about a pivot. E[x^2]
// - E[x]^2 cancels the digits of a smooth window whose mean lies far from the pivot. So each lane
// has pivots of its own that follow the rows; partial sums are moved along with them.
//
// No single pivot suits all sums. In windows that have just begun there are only the newest rows;
// where a window is nearly complete, its newest rows may lie beyond an edge that hardly counts in
// it. So young sums are about the level of the newest rows, and old ones about that of four rows
// before.
struct Pivots {
  float young;
  float old;
};

struct NoPivots {};  // both zero

// Partial sums of w x and w x^2, over the rows so far of the windows that have begun. Each of the
// next rows completes one window.
template <class Taps, int kCount>
class PartialSums {
 public:
  struct Moments {
    float sum;
    float square;
  };

  __device__ void move_pivots(const Pivots& from, const Pivots& to) {
    move<0, kOld>(to.young - from.young);
    move<kOld, kLast>(to.old - from.old);
  }

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kCount; ++c)
#pragma unroll
      for (int k = 0; k < kLast; ++k) sum_[c][k] = square_[c][k] = 0.0f;
  }

 protected:
  static constexpr int kLast = Taps::kTaps - 1;
  static constexpr int kOld = 2 * kLast / 3 + 1;  // sums over more rows than this are old

  // Element k: over the last k + 1 rows.
  using Partial = float[kCount][kLast];

  // From sums of w x and w x^2 over the first k + 1 rows of a window to those of w (x - delta) and
  // w (x - delta)^2.
  static __device__ Moments about(const Moments& m, float delta, int k) {
    constexpr Taps kTaps;
    const float halfway = fmaf(-0.5f * delta, kTaps.partial[k], m.sum);
    return {fmaf(-delta, kTaps.partial[k], m.sum), fmaf(-2.0f * delta, halfway, m.square)};
  }

  __device__ Moments partial(int c, int k) const { return {sum_[c][k], square_[c][k]}; }

  Partial sum_;
  Partial square_;

 private:
  template <int kFrom, int kTo>
  __device__ void move(float delta) {
#pragma unroll
    for (int k = kFrom; k < kTo; ++k)
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        const Moments moved = about(partial(c, k), delta, k);
        sum_[c][k] = moved.sum;
        square_[c][k] = moved.square;
      }
  }
};

// For any taps; rows enter one by one.
template <class Taps, int kCount = kColumns>
class WindowSums : public PartialSums<Taps, kCount> {
 public:
  using typename PartialSums<Taps, kCount>::Moments;

  // The lane's columns and the halo on both sides.
  static constexpr int kWindowColumns = kCount + 2 * Taps::kHalo;

  // Adds a row and returns the sums of the window that ends with it. Overwrites `x`.
  __device__ void add_row(float (&x)[kWindowColumns], const NoPivots&, float (&sum)[kCount],
                          float (&square)[kCount]) {
    float row_sum[kCount], row_square[kCount];
    filter_with_squares(x, row_sum, row_square);
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      sum[c] = advance(sum_[c], row_sum[c], row_sum[c], sum_[c][kOld - 1]);
      square[c] = advance(square_[c], row_square[c], row_square[c], square_[c][kOld - 1]);
    }
  }

  // The same about pivots, with the same bits if both are zero.
  __device__ void add_row(float (&x)[kWindowColumns], const Pivots& pivots, float (&sum)[kCount],
                          float (&square)[kCount]) {
#pragma unroll
    for (int i = 0; i < kWindowColumns; ++i) x[i] = __fsub_rn(x[i], pivots.young);
    float row_sum[kCount], row_square[kCount];
    filter_with_squares(x, row_sum, row_square);
    const float delta = pivots.old - pivots.young;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      const Moments row = about({row_sum[c], row_square[c]}, delta, 0);
      const Moments grown = about(partial(c, kOld - 1), delta, kOld - 1);
      sum[c] = advance(sum_[c], row_sum[c], row.sum, grown.sum);
      square[c] = advance(square_[c], row_square[c], row.square, grown.square);
    }
  }

 private:
  using Base = PartialSums<Taps, kCount>;
  using Base::about;
  using Base::kLast;
  using Base::kOld;
  using Base::partial;
  using Base::square_;
  using Base::sum_;

  static __device__ void filter_with_squares(float (&x)[kWindowColumns], float (&row_sum)[kCount],
                                             float (&row_square)[kCount]) {
    filter(x, row_sum, [](float end, float sum) { return end + sum; });
    // The outermost columns are end taps of one window each; `add_end` squares them.
#pragma unroll
    for (int i = 1; i < kWindowColumns - 1; ++i) x[i] = __fmul_rn(x[i], x[i]);
    filter(x, row_square, [](float end, float sum) { return fmaf(end, end, sum); });
  }

  // Sums along a row. `add_end` adds the outermost columns.
  template <class AddEnd>
  static __device__ void filter(const float (&x)[kWindowColumns], float (&row)[kCount],
                                const AddEnd& add_end) {
    constexpr int kEnd = kWindowColumns - 1;
    constexpr Taps kTaps;
    row[0] = add_end(x[0], x[kLast]);
#pragma unroll
    for (int c = 1; c < kCount - 1; ++c) row[c] = x[c] + x[c + kLast];
    row[kCount - 1] = add_end(x[kEnd], x[kEnd - kLast]);
#pragma unroll
    for (int k = 1; k < kLast; ++k)
#pragma unroll
      for (int c = 0; c < kCount; ++c) row[c] = fmaf(kTaps.tap[k], x[c + k], row[c]);
  }

  // Begins with the oldest sum: each moves on by one place as it grows, which costs no copies.
  static __device__ float advance(float (&partial)[kLast], float young_row, float old_row,
                                  float grown) {
    constexpr Taps kTaps;
    const float complete = partial[kLast - 1] + old_row;
#pragma unroll
    for (int k = kLast - 1; k > kOld; --k) partial[k] = fmaf(kTaps.tap[k], old_row, partial[k - 1]);
    partial[kOld] = fmaf(kTaps.tap[kOld], old_row, grown);
#pragma unroll
    for (int k = kOld - 1; k > 0; --k) partial[k] = fmaf(kTaps.tap[k], young_row, partial[k - 1]);
    partial[0] = young_row;
    return complete;
  }
};

}  // namespace syncfree::ssim
