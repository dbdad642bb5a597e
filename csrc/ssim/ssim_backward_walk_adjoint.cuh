// One warp sums the terms of the windows around each pixel, down 64 columns: reads them from the
// ring and writes the gradients of both images, to which it adds those of each pixel's errors.
#pragma once

#include "ssim/ssim_backward_walk_memory.cuh"
#include "ssim/ssim_backward_walk_ring.cuh"
#include "ssim/ssim_backward_walk_sums.cuh"

namespace syncfree::ssim {

// `kErrors`: gradients arrive for the errors too. `kValues`: the loss is wanted, which then
// includes the sum of absolute errors.
template <class Access, bool kErrors, bool kValues>
class AdjointWalk {
 public:
  __device__ AdjointWalk(const BackwardJob<float>& job, const Constants<float>& constants,
                         const WalkResults& results,
                         WindowMemory<typename Access::Element, kValues>& memory, int warp)
      : job_(job),
        results_(results),
        memory_(memory),
        scale_(constants.scale),
        warp_(warp),
        lane_(job, memory.planes) {}

  __device__ void start(const Piece& piece) {
    if constexpr (kErrors) {
      __syncwarp();  // other lanes may still read the last piece's values
      memory_.errors = ErrorWeights<float>(job_, piece.plane / job_.channels);
      __syncwarp();
    }
    const int begin = piece.left + warp_ * kWarpColumns;
    const int last = piece.left + (piece.right - 1 - piece.left) / kWalkColumns * kWalkColumns;
    const int column = begin + threadIdx.x % 32 * kWalkColumns;
    // A lane beyond the strip does the same as the last one inside, since all lanes of a warp
    // decide together on pivots.
    const int column_read = min(column, last);
    at_ = kMargin + column_read - piece.base;
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      const bool on_edge = column + c == 0 || column + c == width() - 1;
      column_scale_[c] = on_edge ? 0.5f * scale_ : scale_;
    }
    levels_ = __fmul_rn(level_of_strip<Access>(job_, piece, scale_), kTapSum);
    pivot_ = {0.0f, 0.0f};
    about_zero_ = true;
    level_s_.clear();
    slope_s_.clear();
    level_d_.clear();
    slope_d_.clear();
    lane_.start({column, column_read, piece.right});
    const unsigned rows = piece.end - piece.top;
    rows_of_preds_ = lane_.wants_preds() ? rows : 0;
    rows_of_target_ = lane_.wants_target() ? rows : 0;
    top_ = piece.top;
    // The first rows complete no output, and are not written.
    row_ = -2 * kReach;
    if constexpr (kSumsErrors) {
      counted_rows_ = column < piece.right ? rows : 0;
      absolute_error_ = 0.0f;
    }
  }

  // Adds the errors of a last, incomplete unit of the image.
  __device__ void end() {
    if constexpr (kSumsErrors) keep_errors();
  }

  // Whether neither the pair nor the partial sums have pivots.
  __device__ bool is_plain(const PairOfRows& pair) const {
    return about_zero_ && !pair.has_pivots_near(warp_);
  }

  // Issues the loads of the pixels in the next two rows of outputs. Called before a barrier, which
  // keeps the compiler from loading later.
  __device__ void fetch() {
#pragma unroll
    for (int r = 0; r < kPairRows; ++r)
      lane_.load(output_row(row_ + r), pixels_[r].preds, pixels_[r].target);
  }

  // Adds two rows of terms, which complete two rows of outputs.
  __device__ void take_pair(const PairOfRows& pair) { take_rows<false>(pair); }

  // Gives the same bits as `take_pair` where all pivots are zero.
  __device__ void take_pair_about_pivots(const PairOfRows& pair) {
    const SumDifference pivot = pair.pivot[at_];
    level_s_.move(slope_s_, pivot.s - pivot_.s);
    level_d_.move(slope_d_, pivot.d - pivot_.d);
    pivot_ = pivot;
    about_zero_ = __all_sync(kWarp, pivot.s == 0.0f && pivot.d == 0.0f);
    take_rows<true>(pair);
  }

 private:
  static constexpr bool kSumsErrors = kErrors && kValues;
  static constexpr int kWindowColumns = AdjointSums::kWindowColumns;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  using Element = typename Access::Element;
  struct Pixels {
    Element preds[kWalkColumns];
    Element target[kWalkColumns];
  };

  // The row of the image; for the first rows, which are not written, any.
  __device__ int output_row(int row) const { return min(top_ + max(row, 0), height() - 1); }

  struct Sums {
    float level[kWalkColumns];
    float slope[kWalkColumns];
  };

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  template <bool kPivots>
  __device__ void take_rows(const PairOfRows& pair) {
#pragma unroll  // so that sums move on without copies
    for (int r = 0; r < kPairRows; ++r)
      take_row<kPivots>(pair.row[r], pair.pivot, row_ + r, pixels_[r]);
    row_ += kPairRows;
    if constexpr (kSumsErrors)
      if (row_ % kUnitRows == 0) keep_errors();
  }

  __device__ void keep_errors() {
    add_in_any_order(memory_.totals[threadIdx.x % 32].absolute_error,
                     absolute_error_ * results_.scale);
    absolute_error_ = 0.0f;
  }

  template <bool kPivots>
  __device__ void take_row(const RowOfTerms& terms, const SumDifference* pivots, int row,
                           const Pixels& pixels) {
    const int y = output_row(row);
    float preds[kWalkColumns], target[kWalkColumns];
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      preds[c] = to<float>(pixels.preds[c]);
      target[c] = to<float>(pixels.target[c]);
    }
    Sums s, d;
    take_terms<kPivots, &SumDifference::s>(terms.plane[0], pivots, level_s_, slope_s_, s);
    take_terms<kPivots, &SumDifference::d>(terms.plane[1], pivots, level_d_, slope_d_, d);
    if constexpr (kSumsErrors)
      if (static_cast<unsigned>(row) < counted_rows_)
#pragma unroll
        for (int c = 0; c < kWalkColumns; ++c) absolute_error_ += fabsf(preds[c] - target[c]);
    // Also for a row that is not written: complete sums would be moved to where a branch needs
    // them.
    finish<kPivots>(y, s, d, preds, target);
    if (static_cast<unsigned>(row) < rows_of_preds_) lane_.store_preds(y, preds);
    if (static_cast<unsigned>(row) < rows_of_target_) lane_.store_target(y, target);
  }

  template <bool kPivots, float SumDifference::* kOf>
  __device__ void take_terms(const WalkTerm* terms, const SumDifference* pivots,
                             AdjointSums& level_sums, AdjointSums& slope_sums, Sums& complete) {
    WalkTerm window[kWindowColumns];
    load_window(terms + at_, window);
    SumDifference window_pivots[kWindowColumns];
    if constexpr (kPivots) load_window(pivots + at_, window_pivots);
    float levels[kWindowColumns], slopes[kWindowColumns];
#pragma unroll
    for (int i = 0; i < kWindowColumns; ++i) {
      levels[i] = window[i].level;
      slopes[i] = window[i].slope;
      if constexpr (kPivots)
        levels[i] = fmaf(slopes[i], pivot_.*kOf - window_pivots[i].*kOf, levels[i]);
    }
    level_sums.add_row(levels, complete.level);
    slope_sums.add_row(slopes, complete.slope);
  }

  // Replaces the pixels of both images by their gradients.
  template <bool kPivots>
  __device__ void finish(int y, const Sums& by_s, const Sums& by_d, float (&preds)[kWalkColumns],
                         float (&target)[kWalkColumns]) const {
    const float scale_of_sums = scale_ * kTapSum;
    const float row_scale = y == 0 || y == height() - 1 ? 0.5f : 1.0f;
    const float zero_s = kPivots ? levels_ + pivot_.s : levels_;
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      const float sum = preds[c] + target[c], difference = preds[c] - target[c];
      const float s = fmaf(sum, scale_of_sums, -zero_s);
      const float d = kPivots ? fmaf(difference, scale_of_sums, -pivot_.d)
                              : __fmul_rn(difference, scale_of_sums);
      const float along_s = fmaf(by_s.slope[c], s, by_s.level[c]);
      const float along_d = fmaf(by_d.slope[c], d, by_d.level[c]);
      const float scale = column_scale_[c] * row_scale;
      gradients_of_pixel<kErrors>(along_s, along_d, scale, difference, memory_.errors, preds[c],
                                  target[c]);
    }
  }

  const BackwardJob<float>& job_;
  const WalkResults& results_;
  WindowMemory<Element, kValues>& memory_;
  const float scale_;
  const int warp_;
  OutputLane<Access> lane_;
  AdjointSums level_s_;
  AdjointSums slope_s_;
  AdjointSums level_d_;
  AdjointSums slope_d_;
  bool about_zero_;  // the partial sums are about a pivot of zero; uniform in a warp
  SumDifference pivot_;
  float levels_;  // window sum of the strip's level
  float column_scale_[kWalkColumns];
  int at_;  // where a row of terms holds the lane's first column
  int top_;
  int row_;                 // next row of outputs to be complete, counted from `top_`
  unsigned rows_of_preds_;  // zero if the lane has no columns or the gradient is not wanted
  unsigned rows_of_target_;
  unsigned counted_rows_;  // zero if the lane has no columns
  float absolute_error_;   // of the current unit
  Pixels pixels_[kPairRows];
};

}  // namespace syncfree::ssim
