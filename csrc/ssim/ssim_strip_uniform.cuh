// Window sums of one plane (s or d) for the uniform window, whose taps are all equal: what
// neighboring windows have in common is added once. Where takes_uniform_strips() holds,
// ssim_uniform_sums.cuh is used instead.
#pragma once

#include "ssim/ssim_strip_levels.cuh"
#include "ssim/ssim_uniform_row.cuh"

namespace syncfree::ssim {

// Rows enter in pairs. The sum of a pair goes to all windows that hold both rows: seven additions
// per column for two rows instead of twelve.
class UniformSums : public PartialSums<UniformWindow, kColumns> {
 public:
  using typename PartialSums<UniformWindow, kColumns>::Moments;

  // The lane's columns and the halo on both sides.
  static constexpr int kWindowColumns = kUniformWindowColumns;

  // Adds a row, by turns the first and the second of a pair, and returns the sums of the window
  // that ends with it. `own` has the sums over the lane's own columns, all of which lie in each of
  // the lane's windows.
  template <int kRowOfPair>
  __device__ void add_row(const float (&x)[kWindowColumns], const Moments& own, const NoPivots&,
                          float (&sum)[kColumns], float (&square)[kColumns]) {
    float row_sum[kColumns], row_square[kColumns];
    filter_uniform(x, own.sum, own.square, row_sum, row_square);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (kRowOfPair == 0) {
        sum[c] = begin_pair(sum_[c], row_sum[c], row_sum[c]);
        square[c] = begin_pair(square_[c], row_square[c], row_square[c]);
      } else {
        const Moments pair = pair_with(c, row_sum[c], row_square[c]);
        sum[c] = end_pair(sum_[c], row_sum[c], pair.sum, pair.sum, sum_[c][4], sum_[c][3]);
        square[c] = end_pair(square_[c], row_square[c], pair.square, pair.square, square_[c][4],
                             square_[c][3]);
      }
    }
  }

  // The same about pivots, with the same bits if both are zero. Overwrites `x`.
  template <int kRowOfPair>
  __device__ void add_row(float (&x)[kWindowColumns], const Moments&, const Pivots& pivots,
                          float (&sum)[kColumns], float (&square)[kColumns]) {
    float own[kColumns];
#pragma unroll
    for (int i = 0; i < kWindowColumns; ++i) x[i] = __fsub_rn(x[i], pivots.young);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) own[c] = x[UniformWindow::kHalo + c];
    float row_sum[kColumns], row_square[kColumns];
    filter_uniform(x, PixelSums::over(own), PixelSums::over_squares(own), row_sum, row_square);
    const float delta = pivots.old - pivots.young;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (kRowOfPair == 0) {
        const Moments row = about({row_sum[c], row_square[c]}, delta, 0);
        sum[c] = begin_pair(sum_[c], row_sum[c], row.sum);
        square[c] = begin_pair(square_[c], row_square[c], row.square);
      } else {
        const Moments pair = pair_with(c, row_sum[c], row_square[c]);
        const Moments old_pair = about(pair, delta, 1);
        const Moments grown = about(partial(c, 4), delta, 4), next = about(partial(c, 3), delta, 3);
        sum[c] = end_pair(sum_[c], row_sum[c], pair.sum, old_pair.sum, grown.sum, next.sum);
        square[c] = end_pair(square_[c], row_square[c], pair.square, old_pair.square, grown.square,
                             next.square);
      }
    }
  }

 private:
  static_assert(kLast == 6 && kOld == 5 && kColumns == 4);

  // Until the second row comes, the first one takes the place of the sum that it completes.
  static __device__ float begin_pair(float (&partial)[kLast], float row, float old_row) {
    const float complete = partial[kLast - 1] + old_row;
    partial[kLast - 1] = row;
    return complete;
  }

  __device__ Moments pair_with(int c, float row_sum, float row_square) const {
    return {sum_[c][kLast - 1] + row_sum, square_[c][kLast - 1] + row_square};
  }

  // Begins with the oldest sum: each moves on by two places as it grows, which costs no copies.
  // `grown` and `next` are the sums over five and four rows, about the old pivot.
  static __device__ float end_pair(float (&partial)[kLast], float row, float pair, float old_pair,
                                   float grown, float next) {
    const float complete = grown + old_pair;
    partial[5] = next + old_pair;
    partial[4] = partial[2] + pair;
    partial[3] = partial[1] + pair;
    partial[2] = partial[0] + pair;
    partial[1] = pair;
    partial[0] = row;
    return complete;
  }
};

}  // namespace syncfree::ssim
