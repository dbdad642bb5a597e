// Window sums of one plane (s or d) as the rows of a strip go by: four that are under way for each
// column stand in registers, the last six rows in shared memory.
#pragma once

#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_ring_orders.h"
#include "ssim/ssim_ring_window.cuh"

namespace syncfree::ssim {

// Of one warp: the last three pairs of rows of sums along a row, of both moments of s and of d.
// Each lane touches its own columns alone.
struct RingLines {
  static constexpr int kMoment = kStripColumns;
  static constexpr int kRow = 4 * kMoment;
  static constexpr int kPair = 2 * kRow;
  static constexpr int kPairs = 3;

  alignas(16) float row[kPairs * kPair];
};

// Where a row's sums go, in the place of those six rows ago, and where those three rows ago are.
struct LinePlace {
  SharedPlace now;
  SharedPlace third;

  __device__ LinePlace squares() const {
    return {now + RingLines::kMoment, third + RingLines::kMoment};
  }
};

struct RingRows {
  float sixth[kColumns];
  float third[kColumns];

  __device__ void load(const LinePlace& place) {
    place.now.load_vector(sixth);
    place.third.load_vector(third);
  }
};

// What a step down one plane takes in: the lane's window of the row, and the rows that it meets.
struct RingInput {
  static constexpr int kHalo = RingWindow::kHalo;

  float x[kColumns + 2 * kHalo];
  RingRows rows;
  LinePlace place;

  // `own` is where the lane's first column stands.
  __device__ void load(const SharedPlace& own, const float (&own_columns)[kColumns],
                       const LinePlace& lines) {
    static_assert(kHalo == kColumns + 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[kHalo + c] = own_columns[c];
    x[0] = (own + -kHalo).load();
    (own + -kColumns).load_vector(x + 1);
    (own + kColumns).load_vector(x + kHalo + kColumns);
    x[kColumns + 2 * kHalo - 1] = (own + 2 * kColumns).load();
    place = lines;
    rows.load(place);
  }
};

// What the rows that meet in a sum are about: levels of pairs of rows, of this one and of the three
// before. Sums under way are about that of the pair before the last (`open`), near the middle of
// the windows that the pair completes; rows that wait are about their own pair's.
struct RingPivots {
  float now;
  float last;
  float open;
  float oldest;
};

inline constexpr int kRingColumns = kColumns + 2 * RingWindow::kHalo;  // of a lane's windows

// Sums along a row. `add_end` adds the outermost columns, which belong to one window each.
template <TapOrder kOrder, class AddEnd>
__device__ void filter_row(const float (&x)[kRingColumns], float (&row)[kColumns],
                           const AddEnd& add_end) {
  constexpr RingWindow kTaps;
  constexpr int kLast = RingWindow::kTaps - 1, kEnd = kRingColumns - 1;
  row[0] = add_end(x[0], x[kLast]);
#pragma unroll
  for (int c = 1; c < kColumns - 1; ++c) row[c] = x[c] + x[c + kLast];
  row[kColumns - 1] = add_end(x[kEnd], x[kEnd - kLast]);
#pragma unroll
  for (int i = 0; i < kLast - 1; ++i) {
    const int k = inner_tap(kOrder, i);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) row[c] = fmaf(kTaps.tap[k], x[c + k], row[c]);
  }
}

// The sums of each column that are under way. Element k: of the window that k more rows than the
// next one complete.
struct OpenSums {
  static constexpr int kOpen = 4;

  float of[kColumns][kOpen];

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int k = 0; k < kOpen; ++k) of[c][k] = 0.0f;
  }

  // Takes in a row of sums, with that of six rows ago in `outer`, and that of three rows ago. Gives
  // out the window that ends with it.
  __device__ float add(int column, float outer, float third) {
    constexpr ColumnTaps kTaps;
    float (&open)[kOpen] = of[column];
    const float a = fmaf(kTaps.a, third, outer);
    const float b = fmaf(kTaps.b, third, outer);
    const float c = fmaf(kTaps.c, third, outer);
    const float complete = open[0] + a;
    open[0] = fmaf(kTaps.k1, b, open[1]);
    open[1] = fmaf(kTaps.k0, c, open[2]);
    open[2] = fmaf(kTaps.k1, b, open[3]);
    open[3] = a;
    return complete;
  }
};

class RingSums {
 public:
  __device__ void clear() {
    sum_.clear();
    square_.clear();
  }

  // Takes in a row, the second of its pair or not, and gives out the sums of the window that ends
  // with it. The input is used up.
  template <RingStep kStep, bool kIsSecond, class Ask>
  __device__ void add_row(RingInput& input, const NoPivots&, float (&sum)[kColumns],
                          float (&square)[kColumns], const Ask& ask_ahead) {
    float u[kColumns];
    if constexpr (kStep.ask == AskAhead::kAtOnce) ask_ahead();
    filter_row<kStep.sums>(input.x, u, [](float end, float sum) { return end + sum; });
    input.place.now.store_vector(u);
    const LinePlace squares = input.place.squares();
    RingRows square_rows;
    square_rows.load(squares);
    if constexpr (kStep.ask == AskAhead::kBeforeSums) ask_ahead();
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      sum[c] = sum_.add(c, u[c] + input.rows.sixth[c], input.rows.third[c]);
    if constexpr (kStep.ask == AskAhead::kAfterSums) ask_ahead();
    float v[kColumns];
    square_inner(input.x);
    if constexpr (kStep.ask == AskAhead::kBeforeSquares) ask_ahead();
    filter_row<kStep.squares>(input.x, v, [](float end, float sum) { return fmaf(end, end, sum); });
    if constexpr (kStep.ask == AskAhead::kAfterSquares) ask_ahead();
    squares.now.store_vector(v);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      square[c] = square_.add(c, v[c] + square_rows.sixth[c], square_rows.third[c]);
  }

  // The same about pivots, with the same bits where all are zero.
  template <RingStep kStep, bool kIsSecond, class Ask>
  __device__ void add_row(RingInput& input, const RingPivots& pivots, float (&sum)[kColumns],
                          float (&square)[kColumns], const Ask& ask_ahead) {
    constexpr float kRowSum = static_cast<float>(RingWindow{}.row_sum);
#pragma unroll
    for (float& x : input.x) x = __fsub_rn(x, pivots.now);
    float u[kColumns], v[kColumns];
    filter_row<kStep.sums>(input.x, u, [](float end, float sum) { return end + sum; });
    input.place.now.store_vector(u);
    const LinePlace squares = input.place.squares();
    RingRows rows = input.rows, square_rows;
    square_rows.load(squares);
    square_inner(input.x);
    filter_row<kStep.squares>(input.x, v, [](float end, float sum) { return fmaf(end, end, sum); });
    squares.now.store_vector(v);
    ask_ahead();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      move(u[c], v[c], __fsub_rn(pivots.open, pivots.now), kRowSum);
      move(rows.sixth[c], square_rows.sixth[c], __fsub_rn(pivots.open, pivots.oldest), kRowSum);
      // Three rows before the first of a pair lies in the pair before the last, whose level it has.
      if constexpr (kIsSecond)
        move(rows.third[c], square_rows.third[c], __fsub_rn(pivots.open, pivots.last), kRowSum);
      sum[c] = sum_.add(c, u[c] + rows.sixth[c], rows.third[c]);
      square[c] = square_.add(c, v[c] + square_rows.sixth[c], square_rows.third[c]);
    }
  }

  __device__ void move_pivot(float from, float to) {
    constexpr ColumnTaps kTaps;
    constexpr double kRowSum = RingWindow{}.row_sum;
#pragma unroll
    for (int k = 0; k < OpenSums::kOpen; ++k) {
      const auto weight = static_cast<float>(kRowSum * kTaps.sum_of_open(OpenSums::kOpen - 1 - k));
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        move(sum_.of[c][k], square_.of[c][k], __fsub_rn(to, from), weight);
    }
  }

 private:
  static __device__ void square_inner(float (&x)[kRingColumns]) {
    // The outermost columns belong to one window each, as end taps.
#pragma unroll
    for (int i = 1; i < kRingColumns - 1; ++i) x[i] = __fmul_rn(x[i], x[i]);
  }

  // From sums of w x and w x^2 to those of w (x - delta) and w (x - delta)^2, where all w are
  // `weight`.
  static __device__ void move(float& sum, float& square, float delta, float weight) {
    const float halfway = fmaf(-0.5f * delta, weight, sum);
    sum = fmaf(-delta, weight, sum);
    square = fmaf(-2.0f * delta, halfway, square);
  }

  OpenSums sum_;
  OpenSums square_;
};

}  // namespace syncfree::ssim
