// Window sums of one plane (s or d) as the rows of a strip enter: the four open sums of each column
// are in registers, the sums along the last six rows in the ring in shared memory.
#pragma once

#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_ring_orders.h"
#include "ssim/ssim_ring_window.cuh"

namespace syncfree::ssim {

// The ring of one warp: the sums along the rows of the last three pairs, both moments of s and of
// d. Each lane touches only its own columns.
struct RingLines {
  static constexpr int kMoment = kStripColumns;
  static constexpr int kRow = 4 * kMoment;
  static constexpr int kPair = 2 * kRow;
  static constexpr int kPairs = 3;

  alignas(16) float row[kPairs * kPair];
};

// `now` is where the sums along a row go; until then, those of six rows ago are there. `third` is
// where those of three rows ago are.
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

// The input of a step down one plane: the lane's window of the row, and the sums along the rows
// three and six rows ago.
struct RingInput {
  static constexpr int kHalo = RingWindow::kHalo;

  float x[kColumns + 2 * kHalo];
  RingRows rows;
  LinePlace place;

  // `own` is where the lane's first column is.
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

// The pivots of the rows that meet in a sum: the levels of the current pair of rows and of the
// three before it. Open sums are about that of the pair before the last (`open`), near the middle
// of the windows that the current pair completes; rows that wait are about the level of their own
// pair.
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

// The open sums of each column: of windows that have begun and are not complete. Element k is of
// the window that is complete k rows after the next one.
struct OpenSums {
  static constexpr int kOpen = 4;

  float of[kColumns][kOpen];

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int k = 0; k < kOpen; ++k) of[c][k] = 0.0f;
  }

  // Adds a sum along a row: in `outer` together with that of six rows ago, and in `third` that of
  // three rows ago. Returns the sum of the window that ends with the row.
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

  // Adds a row, the second of its pair if `kIsSecond`, and returns the sums of the window that ends
  // with it. Overwrites `input`.
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

  // The same about pivots, with the same bits if all are zero.
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
      // Three rows before the first row of a pair is a row of the pair before the last, whose level
      // is `open` already.
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
    // The outermost columns are end taps of one window each; `add_end` squares them.
#pragma unroll
    for (int i = 1; i < kRingColumns - 1; ++i) x[i] = __fmul_rn(x[i], x[i]);
  }

  // From sums of w x and w x^2 to those of w (x - delta) and w (x - delta)^2, where all w together
  // are `weight`.
  static __device__ void move(float& sum, float& square, float delta, float weight) {
    const float halfway = fmaf(-0.5f * delta, weight, sum);
    sum = fmaf(-delta, weight, sum);
    square = fmaf(-2.0f * delta, halfway, square);
  }

  OpenSums sum_;
  OpenSums square_;
};

}  // namespace syncfree::ssim
