// Sums the terms of the windows around each pixel, down a lane's four columns: reads them from
// shared memory and writes the gradients of both images, to which it adds those of each pixel's
// errors.
#pragma once

#include "ssim/gradient_orders.h"
#include "ssim/settled_address.cuh"
#include "ssim/ssim_backward_ring_sums.cuh"

namespace syncfree::ssim {

// `kErrors`: gradients arrive for errors too.
template <class Access, bool kErrors>
class RingOutputs {
 public:
  using Element = typename Access::Element;

  __device__ RingOutputs(const BackwardJob<float>& job, const WalkResults& results,
                         GradientMemory<Element>& memory)
      : job_(job), results_(results), memory_(memory) {}

  // Sets what the warp shares. Between two barriers.
  __device__ void place(const GradientPiece& piece) {
    const ImageWeights<float> arriving(job_, piece.plane / job_.channels);
    const auto plane_of = [&](const GradientImage& gradient) -> Element* {
      if (gradient.data == nullptr) return nullptr;
      return static_cast<Element*>(gradient.data) +
             plane_offset(gradient, job_.channels, piece.plane);
    };
    memory_.planes = {plane_of(job_.grad_preds), plane_of(job_.grad_target)};
    memory_.errors = arriving.errors;
    memory_.outputs.one = 1.0f;
    // The factor of 4 of window_gradient(): the derivatives of squares and of a quotient hold it.
    memory_.outputs.scale = memory_.pixels.scale * 4.0f * arriving.value;
  }

  __device__ void start(const GradientPiece& piece, const LanePlace<Element>& place) {
    place_ = place;
    first_ = piece.left + kColumns * static_cast<int>(threadIdx.x);
    top_ = piece.top;
    rows_ = first_ < piece.right ? piece.end - piece.top : 0;
    has_edge_ = piece.left == 0 || piece.right == width();
    for (TermSums& sums : sums_) sums.clear();
    if constexpr (kErrors) absolute_error_ = 0.0f;
  }

  // Issues the loads of the pixels in a row of outputs.
  __device__ void fetch(int y) {
    const int row = min(max(y, 0), height() - 1);
    load(job_.preds, settled(memory_.images.preds), row, preds_);
    load(job_.target, settled(memory_.images.target), row, target_);
  }

  // Loads the first of a row's planes of terms.
  __device__ void ask(const LinePlace& lines) { load(kOrders.terms[0].plane, lines); }

  // Adds a row of terms, which completes the row of outputs `y`, and writes that. With kPivots, the
  // levels of each lane's windows are relative to its `window_pivot`.
  template <bool kPivots>
  __device__ void take_row(const LinePlace& lines, int y, const SumDifference& window_pivot = {}) {
    SumDifference pivot{0.0f, 0.0f};
    if constexpr (kPivots) pivot = own_pivot(window_pivot);
    if constexpr (!kOrders.asks_early) ask(lines);
    Complete sums;
    add_terms<kPivots, 0>(lines, pivot, window_pivot, sums);
    if (has_edge_) halve_edge(sums);
    __syncwarp();  // keeps the compiler from waiting for the pixels earlier
    finish<kPivots>(y, pivot, sums);
  }

  // Makes partial sums and lines relative to pivots that are `delta` larger, in units of window
  // sums.
  __device__ void move_pivot(const SharedPlace& first_line, const SumDifference& delta) {
    sums_[kLevelS].move(sums_[kSlopeS], delta.s);
    sums_[kLevelD].move(sums_[kSlopeD], delta.d);
    for (int i = 0; i < GradientLines::kRows; ++i) {
      const SharedPlace row = first_line + (i * GradientLines::kRow + GradientLines::kTerms);
      move_line(row + kLevelS * GradientLines::kPlane, delta.s);
      move_line(row + kLevelD * GradientLines::kPlane, delta.d);
    }
  }

  // The pivots of the windows in the lane's output columns, given those of each lane's own windows.
  __device__ SumDifference own_pivot(const SumDifference& of_windows) const {
    const int lane = window_lane(first_);
    return {__shfl_sync(kWarp, of_windows.s, lane), __shfl_sync(kWarp, of_windows.d, lane)};
  }

  // Adds the errors of a last, incomplete unit of the image.
  __device__ void end() {
    if constexpr (kErrors)
      if (wants_sums()) keep_errors();
  }

 private:
  static constexpr GradientOrders kOrders = kGradientOrders<kErrors>;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<RingWindow>);

  __device__ bool wants_sums() const { return results_.wants_error; }

  using Complete = float[kTermPlanes][kColumns];

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  __device__ SharedPlace terms(int plane) const {
    return place_.terms() + (kMargin + plane * GradientMemory<Element>::kTermPitch);
  }

  __device__ void load(TermPlane plane, const LinePlace& lines) {
    const int of_plane = GradientLines::kTerms + plane * GradientLines::kPlane;
    input_.load(terms(plane), {lines.now + of_plane, lines.third + of_plane});
  }

  template <bool kPivots, int kStep>
  __device__ void add_terms(const LinePlace& lines, const SumDifference& pivot,
                            const SumDifference& window_pivot, Complete& sums) {
    constexpr TermStep kTerms = kOrders.terms[kStep];
    if constexpr (kPivots && kTerms.plane == kLevelS) move_levels(kSlopeS, pivot.s, window_pivot.s);
    if constexpr (kPivots && kTerms.plane == kLevelD) move_levels(kSlopeD, pivot.d, window_pivot.d);
    constexpr bool kIsLast = kStep + 1 == kTermPlanes;
    sums_[kTerms.plane].template add_row<kTerms.taps, kOrders.asks_before_store>(
        input_, sums[kTerms.plane], [&] {
          if constexpr (!kIsLast) load(kOrders.terms[kStep + 1].plane, lines);
        });
    if constexpr (!kIsLast) add_terms<kPivots, kStep + 1>(lines, pivot, window_pivot, sums);
  }

  // The lane that has the windows of a column. Lane 0's outputs begin at the strip's first column
  // and its windows kMargin before that, except at the left edge of the image.
  __device__ int window_lane(int column) const {
    const int left = first_ - kColumns * static_cast<int>(threadIdx.x);
    return min(max((column - max(left - kMargin, 0)) / kColumns, 0), 31);
  }

  __device__ static void move_line(const SharedPlace& level_line, float delta) {
    static_assert(kSlopeS == kLevelS + 1 && kSlopeD == kLevelD + 1);
    float level[kColumns], slope[kColumns];
    level_line.load_vector(level);
    (level_line + GradientLines::kPlane).load_vector(slope);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) level[c] = fmaf(slope[c], delta, level[c]);
    level_line.store_vector(level);
  }

  // Makes the levels of windows, which are relative to pivots of their own, relative to this
  // lane's.
  __device__ void move_levels(TermPlane slopes, float pivot, float window_pivot) {
    float slope[kRingColumns];
    TermInput::load_terms(terms(slopes), slope);
#pragma unroll
    for (int i = 0; i < kRingColumns; ++i) {
      const int column = max(mirror(first_ + i - kReach, width()), 0);
      const float from = __shfl_sync(kWarp, window_pivot, window_lane(column));
      input_.x[i] = fmaf(slope[i], __fmul_rn(__fsub_rn(pivot, from), kTapSum), input_.x[i]);
    }
  }

  // A pixel on an edge is its own mirror image, so its sums count half.
  __device__ void halve_edge(Complete& sums) const {
    for_columns_at_edge<Access>(first_, width(), [&sums](int c) {
#pragma unroll
      for (auto& plane : sums) plane[c] *= 0.5f;
    });
  }

  template <bool kPivots>
  __device__ void finish(int y, const SumDifference& pivot, const Complete& sums) {
    float preds[kColumns], target[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      preds[c] = to<float>(preds_[c]);
      target[c] = to<float>(target_[c]);
    }
    OutputInputs k;
    // Loaded no earlier than the sums, whose accesses to shared memory precede it.
    SharedPlace(&memory_.outputs.scale_of_sums).load_vector(&k.scale_of_sums);
    const bool counts = static_cast<unsigned>(y - top_) < static_cast<unsigned>(rows_);
    if constexpr (kErrors) {
      if (y % kUnitRows == 0 && wants_sums()) keep_errors();
      if (counts)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) absolute_error_ += fabsf(preds[c] - target[c]);
    }
    const float zero_s = kPivots ? fmaf(pivot.s, kTapSum, k.zero_s) : k.zero_s;
    const float zero_d = __fmul_rn(pivot.d, kTapSum);
    const float scale = y == 0 || y == height() - 1 ? 0.5f * k.scale : k.scale;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = fmaf(preds[c], k.one, target[c]);
      const float difference = fmaf(preds[c], k.one, -target[c]);
      const float s = fmaf(sum, k.scale_of_sums, -zero_s);
      const float d = kPivots ? fmaf(difference, k.scale_of_sums, -zero_d)
                              : __fmul_rn(difference, k.scale_of_sums);
      const float along_s = fmaf(sums[kSlopeS][c], s, sums[kLevelS][c]);
      const float along_d = fmaf(sums[kSlopeD][c], d, sums[kLevelD][c]);
      gradients_of_pixel<kErrors>(along_s, along_d, scale, difference, memory_.errors, preds[c],
                                  target[c]);
    }
    const OutputPlanes<Element> planes = memory_.planes;
    store(job_.grad_preds, planes.grad_preds, counts, y, preds);
    store(job_.grad_target, planes.grad_target, counts, y, target);
  }

  // Adds up the errors of the unit that ends above this row. The sum is in shared memory, since one
  // in each lane would take four registers.
  __device__ void keep_errors() {
    const ExactSum of_lane = split(static_cast<double>(absolute_error_ * results_.scale));
    const double high = warp_sum(of_lane.high), low = warp_sum(of_lane.low);
    if (threadIdx.x == 0) {
      memory_.absolute_error.high += high;
      memory_.absolute_error.low += low;
    }
    absolute_error_ = 0.0f;
  }

  // Fits into 32 bits, which VectorPixelsOf::apply ensures.
  __device__ static unsigned offset(std::int64_t pitch, int y, int column) {
    return static_cast<unsigned>(y) * static_cast<unsigned>(pitch) + column;
  }

  __device__ void load(const Image& image, const Element* plane, int y,
                       Element (&x)[kColumns]) const {
    // A lane without columns reads those of the last one in the image.
    const int column = min(first_, (width() - 1) / kColumns * kColumns);
    if constexpr (Access::kAligned) {
      using Vector = VectorOf<sizeof(x)>;
      const Vector vector = load_streaming(
          reinterpret_cast<const Vector*>(plane + offset(image.stride[3], y, column)));
      memcpy(x, &vector, sizeof(vector));
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        x[c] = load_element<Element>(plane + y * image.stride[3] +
                                     min(column + c, width() - 1) * image.stride[4]);
    }
  }

  __device__ void store(const GradientImage& gradient, Element* plane, bool counts, int y,
                        const float (&x)[kColumns]) const {
    counts = counts && plane != nullptr;
    if constexpr (Access::kAligned) {
      Element rounded[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) rounded[c] = Access::rounded(x[c]);
      VectorOf<sizeof(rounded)> vector;
      memcpy(&vector, rounded, sizeof(vector));
      // `anew` keeps y out of a uniform register: no instruction multiplies such a register by a
      // constant from memory.
      const unsigned at = offset(gradient.stride[3], anew(y), first_);
      store_streaming_if(counts, reinterpret_cast<decltype(vector)*>(plane + at), vector);
    } else if (counts) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (first_ + c < width())
          plane[y * gradient.stride[3] + (first_ + c) * gradient.stride[4]] = Access::rounded(x[c]);
    }
  }

  const BackwardJob<float>& job_;
  const WalkResults& results_;
  GradientMemory<Element>& memory_;
  LanePlace<Element> place_;
  TermSums sums_[kTermPlanes];
  TermInput input_;
  int top_;               // of the piece
  int rows_;              // rows of outputs that the lane writes
  int first_;             // of the lane's columns
  bool has_edge_;         // the piece lies at an edge of the image; uniform in a warp
  float absolute_error_;  // of the current unit
  Element preds_[kColumns];
  Element target_[kColumns];
};

}  // namespace syncfree::ssim
