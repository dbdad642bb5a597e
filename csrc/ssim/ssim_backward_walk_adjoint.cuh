// One warp walks down 128 columns of gradients: what windows pass back comes out of the ring, is
// summed over the windows around each pixel, and leaves as the gradients of both images.
#pragma once

#include "ssim/ssim_backward_pixels.cuh"
#include "ssim/ssim_backward_walk_ring.cuh"
#include "ssim/ssim_backward_walk_sums.cuh"

namespace syncfree::ssim {

template <class Access>
class AdjointWalk {
 public:
  __device__ AdjointWalk(const BackwardJob<float>& job, const Constants<float>& constants,
                         PairOfRows* ring, Gates& gates, int slots, int warp)
      : job_(job), constants_(constants), ring_(ring), gates_(gates), slots_(slots), warp_(warp) {}

  __device__ void run(const Piece& piece) {
    const int begin = piece.left + warp_ * kStripColumns;
    const int pairs = piece.pairs();
    if (begin >= piece.right) {
      for (int pair = 0; pair < pairs; ++pair) {
        gates_.full[place_.slot].wait(place_.round + 1);
        give_back();
      }
      return;
    }
    top_ = piece.top;
    end_ = piece.end;
    right_ = piece.right;
    column_ = begin + threadIdx.x % 32 * kColumns;
    const int last = piece.left + (piece.right - 1 - piece.left) / kColumns * kColumns;
    // A lane beyond the strip does as the last one inside: all lanes of a warp decide together.
    column_read_ = min(column_, last);
    at_ = kMargin + column_read_ - piece.base;
    on_left_edge_ = begin == 0;
    on_right_edge_ = begin + kStripColumns + kReach > width();
    place_mirror(piece.base);
    edge_columns_ = 0;
    for (int c = 0; c < kColumns; ++c)
      if (column_ + c == 0 || column_ + c == width() - 1) edge_columns_ |= 1 << c;
    levels_ = __fmul_rn(level_of_strip<Access>(job_, piece, constants_.scale), kTapSum);
    pivot_s_ = pivot_d_ = 0.0f;
    about_zero_ = true;
    preds_ = plane_offset(job_.preds, job_.channels, piece.plane);
    target_ = plane_offset(job_.target, job_.channels, piece.plane);
    grad_preds_ = plane_offset(job_.grad_preds, job_.channels, piece.plane);
    grad_target_ = plane_offset(job_.grad_target, job_.channels, piece.plane);
    level_s_.clear();
    slope_s_.clear();
    level_d_.clear();
    slope_d_.clear();
    // The first rows complete nothing, and are not written.
    int y = piece.top - 2 * kReach;
    for (int pair = 0; pair < pairs; ++pair, y += kPairRows) take_pair(y);
  }

 private:
  static constexpr int kWindowColumns = AdjointSums::kWindowColumns;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  struct Sums {
    float level_s[kColumns], slope_s[kColumns], level_d[kColumns], slope_d[kColumns];
  };

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  __device__ void give_back() {
    gates_.empty[place_.slot].pass();
    place_.advance(slots_);
  }

  // Windows beyond an edge are mirror images of those inside, as their pixels are. A few lanes copy
  // one column each.
  __device__ void place_mirror(int base) {
    const int lane = threadIdx.x % 32;
    const int edge = lane < 16 ? 0 : width() - 1;
    const int distance = lane % 16 + 1;
    mirrors_ = distance <= kReach && (lane < 16 ? on_left_edge_ : on_right_edge_);
    mirror_from_ = kMargin + edge - base + (lane < 16 ? distance : -distance);
    mirror_to_ = kMargin + edge - base - (lane < 16 ? distance : -distance);
  }

  __device__ void mirror_columns(PairOfRows& pair, bool has_pivots) const {
    if (mirrors_) {
#pragma unroll
      for (int r = 0; r < kPairRows; ++r)
#pragma unroll
        for (auto& plane : pair.row[r].plane) plane[mirror_to_] = plane[mirror_from_];
      if (has_pivots) {
        pair.pivot_s[mirror_to_] = pair.pivot_s[mirror_from_];
        pair.pivot_d[mirror_to_] = pair.pivot_d[mirror_from_];
      }
    }
    __syncwarp();
  }

  // Two rows of windows enter; the outputs of the rows `y` and `y` + 1 are complete with them.
  __device__ void take_pair(int y) {
    gates_.full[place_.slot].wait(place_.round + 1);
    PairOfRows& pair = ring_[place_.slot];
    const int4 flags = *reinterpret_cast<const int4*>(pair.has_pivots);
    const bool has_pivots = (flags.x | flags.y | flags.z | flags.w) != 0;
    if (on_left_edge_ || on_right_edge_) mirror_columns(pair, has_pivots);
    if (about_zero_ && !has_pivots) {
      take_rows<false>(pair, y);
      return;
    }
    // The bits are those of the way without pivots where all are zero.
    const float pivot_s = pair.pivot_s[at_], pivot_d = pair.pivot_d[at_];
    level_s_.move(slope_s_, pivot_s - pivot_s_);
    level_d_.move(slope_d_, pivot_d - pivot_d_);
    pivot_s_ = pivot_s;
    pivot_d_ = pivot_d;
    about_zero_ = __all_sync(kWarp, pivot_s == 0.0f && pivot_d == 0.0f);
    take_rows<true>(pair, y);
  }

  template <bool kPivots>
  __device__ void take_rows(const PairOfRows& pair, int y) {
#pragma unroll 1  // as in WindowWalk
    for (int r = 0; r < kPairRows; ++r) take_row<kPivots>(pair, r, y + r);
  }

  template <bool kPivots>
  __device__ void take_row(const PairOfRows& pair, int r, int y) {
    const RowOfTerms& terms = pair.row[r];
    const int y_read = min(max(y, 0), height() - 1);
    float a[kColumns], b[kColumns];
    load_pixels(job_.preds, preds_, y_read, a);
    load_pixels(job_.target, target_, y_read, b);
    Sums sums;
    take_planes<kPivots>(terms.plane[kLevelS], terms.plane[kSlopeS], pair.pivot_s, pivot_s_,
                         level_s_, slope_s_, sums.level_s, sums.slope_s);
    take_planes<kPivots>(terms.plane[kLevelD], terms.plane[kSlopeD], pair.pivot_d, pivot_d_,
                         level_d_, slope_d_, sums.level_d, sums.slope_d);
    if (r == kPairRows - 1) give_back();
    if (y >= top_ && y < end_) finish(y, sums, a, b);
  }

  template <bool kPivots>
  __device__ void take_planes(const float* levels, const float* slopes, const float* pivots,
                              float pivot, AdjointSums& level_sums, AdjointSums& slope_sums,
                              float (&level)[kColumns], float (&slope)[kColumns]) {
    float x[kWindowColumns];
    if constexpr (kPivots) {
      float slopes_here[kWindowColumns];
      load_window(slopes + at_, slopes_here);
      load_window(levels + at_, x);
#pragma unroll
      for (int i = 0; i < kWindowColumns; ++i)
        x[i] = fmaf(slopes_here[i], pivot - pivots[at_ + i - kReach], x[i]);
      level_sums.add_row(x, level);
      slope_sums.add_row(slopes_here, slope);
    } else {
      load_window(levels + at_, x);
      level_sums.add_row(x, level);
      load_window(slopes + at_, x);
      slope_sums.add_row(x, slope);
    }
  }

  __device__ static void load_window(const float* own, float (&x)[kWindowColumns]) {
    static_assert(kReach == kColumns + 1);
    x[0] = own[-kReach];
#pragma unroll
    for (int i = 0; i < 3; ++i) load_shared(own + (i - 1) * kColumns, x + 1 + i * kColumns);
    x[kWindowColumns - 1] = own[2 * kColumns];
  }

  __device__ void finish(int y, const Sums& sums, const float (&a)[kColumns],
                         const float (&b)[kColumns]) const {
    const float scale_of_sums = constants_.scale * kTapSum;
    const float scale = y == 0 || y == height() - 1 ? 0.5f * constants_.scale : constants_.scale;
    const float zero_s = levels_ + pivot_s_;
    float by_preds[kColumns], by_target[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = a[c] + b[c], difference = a[c] - b[c];
      const float s = fmaf(sum, scale_of_sums, -zero_s);
      const float d = fmaf(difference, scale_of_sums, -pivot_d_);
      const float by_s = fmaf(sums.slope_s[c], s, sums.level_s[c]);
      const float by_d = fmaf(sums.slope_d[c], d, sums.level_d[c]);
      by_preds[c] = (by_s + by_d) * scale;
      by_target[c] = (by_s - by_d) * scale;
    }
    if (edge_columns_ != 0) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if ((edge_columns_ >> c & 1) == 0) continue;
        by_preds[c] *= 0.5f;
        by_target[c] *= 0.5f;
      }
    }
    write(job_.grad_preds, grad_preds_, y, by_preds);
    write(job_.grad_target, grad_target_, y, by_target);
  }

  __device__ static std::int64_t row_offset(std::int64_t stride, int y) {
    if constexpr (Access::kAligned)
      return static_cast<int>(stride) * y;
    else
      return stride * y;
  }

  __device__ void load_pixels(const Image& image, std::int64_t plane, int y,
                              float (&x)[kColumns]) const {
    const std::int64_t row = plane + row_offset(image.stride[3], y);
    if constexpr (Access::kAligned) {
      Access::load_vector(image, row + column_read_, x);
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        x[c] = Access::load(image, row + min(column_read_ + c, width() - 1) * image.stride[4]);
    }
  }

  __device__ void write(const GradientImage& gradient, std::int64_t plane, int y,
                        const float (&values)[kColumns]) const {
    if (gradient.data == nullptr) return;
    const std::int64_t row = plane + row_offset(gradient.stride[3], y);
    if constexpr (Access::kAligned) {
      if (column_ < right_) Access::store_vector(gradient, row + column_, values);
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (column_ + c < right_)
          Access::store(gradient, row + (column_ + c) * gradient.stride[4], values[c]);
    }
  }

  const BackwardJob<float>& job_;
  const Constants<float> constants_;
  PairOfRows* const ring_;
  Gates& gates_;
  const int slots_;
  const int warp_;
  RingPlace place_;
  AdjointSums level_s_;
  AdjointSums slope_s_;
  AdjointSums level_d_;
  AdjointSums slope_d_;
  bool about_zero_;  // the sums under way are; the same in a warp
  float pivot_s_;
  float pivot_d_;
  float levels_;  // of the strip, in units of sums
  int at_;        // where a row of terms holds the lane's first column
  int column_;
  int column_read_;
  int top_;
  int end_;
  int right_;
  bool on_left_edge_;
  bool on_right_edge_;
  int edge_columns_;  // a bit for each of the lane's columns that is the image's first or last
  bool mirrors_;
  int mirror_from_;
  int mirror_to_;
  std::int64_t preds_;
  std::int64_t target_;
  std::int64_t grad_preds_;
  std::int64_t grad_target_;
};

}  // namespace syncfree::ssim
