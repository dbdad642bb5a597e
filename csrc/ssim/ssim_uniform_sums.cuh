// Window sums of one plane (s or d) for the uniform window, whose taps are all equal: what windows
// have in common is added once.
#pragma once

#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_strip_levels.cuh"
#include "ssim/ssim_uniform_row.cuh"

namespace syncfree::ssim {

// Of the last three pairs the sums along the second rows wait in shared memory; those of one pair
// are a line. In it, for each plane, the sums of x come before those of x^2. Each lane touches only
// its own columns.
inline constexpr int kUniformPairs = 3;
inline constexpr int kUniformSums = kStripColumns;

// The pivots of the rows that meet in a sum: the levels of the current pair of rows and of the
// three before it. Partial sums are about that of the pair before the last (`open`), in the middle
// of the windows that the current pair completes; rows that wait are about the level of their own
// pair.
struct UniformPivots {
  float now;
  float last;
  float open;
  float oldest;
};

// Rows enter in pairs. Let P(m) be the sum of pair m. Two windows have six rows in common, those of
// three pairs: T(m) = P(m - 2) + P(m - 1) + P(m). One of them adds the row before these, the other
// the row after. Five additions per column for two rows.
struct PairSums {
  float three[kColumns];  // T of the last pair
  float two[kColumns];    // the last two pairs
  float last[kColumns];   // P of the last pair
  float first[kColumns];  // the first row of the pair that enters

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) three[c] = two[c] = last[c] = 0.0f;
  }

  // Pins each number in its register at the end of a loop: the compiler would rather rotate the
  // registers of all of them, with a move each.
  __device__ void settle() {
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      asm volatile("" : "+f"(three[c]), "+f"(two[c]), "+f"(last[c]));
#endif
  }
};

class UniformPairs {
 public:
  __device__ void clear() {
    sum_.clear();
    square_.clear();
  }

  __device__ void settle() {
    sum_.settle();
    square_.settle();
  }

  // Adds the first row of a pair and returns the sums of the window that ends with it.
  __device__ void add_first(const float (&x)[kColumns], const NoPivots&, float (&sum)[kColumns],
                            float (&square)[kColumns]) {
    filter(x, sum_.first, square_.first);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = sum_.three[c] + sum_.first[c];
      square[c] = square_.three[c] + square_.first[c];
    }
  }

  // The same for the second row. `line` holds the second row of three pairs ago, which this one
  // replaces.
  __device__ void add_second(const float (&x)[kColumns], const NoPivots&, SharedPlace line,
                             float (&sum)[kColumns], float (&square)[kColumns]) {
    Rows old, row;
    old.load(line);
    filter(x, row.sum, row.square);
    row.store(line);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = end_pair(sum_, c, row.sum[c], old.sum[c]);
      square[c] = end_pair(square_, c, row.square[c], old.square[c]);
    }
  }

  // The same about pivots, with the same bits if all are zero.
  __device__ void add_first(const float (&x)[kColumns], const UniformPivots& pivots,
                            float (&sum)[kColumns], float (&square)[kColumns]) {
    filter_about(x, pivots.now, sum_.first, square_.first);
    const float delta = __fsub_rn(pivots.open, pivots.now);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Moments row = moved({sum_.first[c], square_.first[c]}, delta, 1);
      sum[c] = sum_.three[c] + row.sum;
      square[c] = square_.three[c] + row.square;
    }
  }

  __device__ void add_second(const float (&x)[kColumns], const UniformPivots& pivots,
                             SharedPlace line, float (&sum)[kColumns], float (&square)[kColumns]) {
    Rows old, row;
    old.load(line);
    filter_about(x, pivots.now, row.sum, row.square);
    row.store(line);
    const float to_open = __fsub_rn(pivots.open, pivots.now);
    const float to_last = __fsub_rn(pivots.last, pivots.now);
    const float from_oldest = __fsub_rn(pivots.open, pivots.oldest);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Moments pair{sum_.first[c] + row.sum[c], square_.first[c] + row.square[c]};
      const Moments for_three = moved(pair, to_open, 2), for_two = moved(pair, to_last, 2);
      const Moments old_row = moved({old.sum[c], old.square[c]}, from_oldest, 1);
      sum[c] = shift(sum_, c, pair.sum, for_two.sum, for_three.sum, old_row.sum);
      square[c] = shift(square_, c, pair.square, for_two.square, for_three.square, old_row.square);
    }
  }

  __device__ void move_pivot(float from, float to) {
    const float delta = __fsub_rn(to, from);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Moments three = moved({sum_.three[c], square_.three[c]}, delta, 6);
      sum_.three[c] = three.sum;
      square_.three[c] = three.square;
    }
  }

 private:
  static constexpr int kHalo = UniformWindow::kHalo;
  static_assert(UniformWindow::kTaps == 7 && kUniformPairs == 3);

  struct Moments {
    float sum;
    float square;
  };

  struct Rows {
    float sum[kColumns];
    float square[kColumns];

    __device__ void load(SharedPlace line) {
      line.load_vector(sum);
      (line + kUniformSums).load_vector(square);
    }
    __device__ void store(SharedPlace line) const {
      line.store_vector(sum);
      (line + kUniformSums).store_vector(square);
    }
  };

  static __device__ void window_of(const float (&own)[kColumns],
                                   float (&x)[kUniformWindowColumns]) {
#pragma unroll
    for (int i = 0; i < kHalo; ++i) {
      x[i] = __shfl_up_sync(kWarp, own[kColumns - kHalo + i], 1);
      x[kHalo + kColumns + i] = __shfl_down_sync(kWarp, own[i], 1);
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[kHalo + c] = own[c];
  }

  static __device__ void filter(const float (&own)[kColumns], float (&row_sum)[kColumns],
                                float (&row_square)[kColumns]) {
    float x[kUniformWindowColumns];
    window_of(own, x);
    filter_uniform(x, PixelSums::over(own), PixelSums::over_squares(own), row_sum, row_square);
  }

  static __device__ void filter_about(const float (&columns)[kColumns], float pivot,
                                      float (&row_sum)[kColumns], float (&row_square)[kColumns]) {
    float x[kUniformWindowColumns], own[kColumns];
    window_of(columns, x);
#pragma unroll
    for (float& each : x) each = __fsub_rn(each, pivot);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) own[c] = x[kHalo + c];
    filter_uniform(x, PixelSums::over(own), PixelSums::over_squares(own), row_sum, row_square);
  }

  static __device__ float end_pair(PairSums& of, int c, float row, float old_row) {
    const float pair = of.first[c] + row;
    return shift(of, c, pair, pair, pair, old_row);
  }

  // Sums move on by one place as they grow, which costs no copies.
  static __device__ float shift(PairSums& of, int c, float pair, float for_two, float for_three,
                                float old_row) {
    of.three[c] = of.two[c] + for_three;
    of.two[c] = of.last[c] + for_two;
    of.last[c] = pair;
    return of.three[c] + old_row;
  }

  // From sums of x and x^2 over `rows` rows of a window to those of x - delta and (x - delta)^2.
  static __device__ Moments moved(const Moments& from, float delta, int rows) {
    const auto weight = static_cast<float>(rows * UniformWindow::kTaps);
    const float halfway = fmaf(-0.5f * delta, weight, from.sum);
    return {fmaf(-delta, weight, from.sum), fmaf(-2.0f * delta, halfway, from.square)};
  }

  PairSums sum_;
  PairSums square_;
};

}  // namespace syncfree::ssim
