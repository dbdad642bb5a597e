// Window sums down the columns of one plane (s or d), eight rows at a time, on tensor cores.
//
// A sum down a column is a product with a banded matrix of taps. The rows of three blocks of eight
// make up the windows of the block in the middle, so a block that enters completes the one before
// it and begins the one behind it:
//
//   sums[16 columns x 8 rows] += moments[16 columns x 8 rows] * taps[8 rows x 8 rows]
//
// is one mma.m16n8k8. Its operands have TF32's 11 bits, so both are given as a high and a low part:
// the three products of them but low * low keep 21 bits (Ootomo and Yokota 2022).
#pragma once

#include <cstdint>

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

// Taps across are those of strips. Taps down are divided by all that they add up to, so that the
// weights of a window do add up to 1. A NaN or an infinity, which a tap of zero does not take out
// of a product, is in some window of the image anyhow, and spoils its mean.
struct NormalizedGaussian : GaussianWindow {
  double tap_sum;  // of a window before

  SYNCFREE_HD constexpr NormalizedGaussian() : tap_sum(row_sum * row_sum) { row_sum = 1.0; }
};

inline constexpr int kBlockRows = 8;
inline constexpr int kLaneRows = 2;  // of a block, with kColumns in each

// What a product leaves in a lane of its 16 x 8: lane 4 g + t has the columns g and g + 8 in the
// rows 2 t and 2 t + 1. Column g of the first product is the lane's column 0 and g + 8 its column
// 1; the second product has its columns 2 and 3. So a lane is given the sums of the very pixels
// whose moments it has put in.
using Fragment = float[4];

__device__ constexpr int fragment_of(int column) {
  return column / 2;
}
__device__ constexpr int place_of(int column, int row) {
  return 2 * (column % 2) + row;
}

struct Operand {
  std::uint32_t high;
  std::uint32_t low;  // of which tensor cores ignore what TF32 has no bits for

  __device__ explicit Operand(float x) {
    high = detail::bit_cast<std::uint32_t>(x) & 0xffffe000u;
    low = detail::bit_cast<std::uint32_t>(x - detail::bit_cast<float>(high));
  }
};

__device__ inline void multiply_add(Fragment& c, const std::uint32_t (&a)[4],
                                    const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif  // other GPUs take the walk of warps
}

// Of the block that enters, for the sums of the block before it, of itself, and of the next one.
enum Share { kCompletes, kIsMiddle, kBegins, kShares };

// What a lane multiplies by, and sums of it over the block's rows: the same for all blocks.
struct ColumnTaps {
  uint4 operand[kShares][32];           // rows 2 t and 2 t + 1: high, high, low, low
  float total[kShares][32][kLaneRows];  // with taps across too

  // By one warp.
  __device__ void fill() {
    constexpr NormalizedGaussian kTaps;
    constexpr double kScale = 1.0 / kTaps.tap_sum;
    constexpr double kRowSum = GaussianWindow{}.row_sum;
    const int lane = threadIdx.x % 32;
    for (int share = 0; share < kShares; ++share) {
      // Rows count from the first of the block whose sums these are.
      const int first_row = kBlockRows * (share == kCompletes ? 1 : share == kIsMiddle ? 0 : -1);
      const auto tap = [&](int row, int output) {
        const int k = first_row + row - output + kTaps.kHalo;
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < kTaps.kTaps; ++i)
          if (i == k) x = static_cast<float>(kTaps.tap[i] * kScale);
        return x;
      };
      const Operand taps[] = {Operand(tap(2 * (lane % 4), lane / 4)),
                              Operand(tap(2 * (lane % 4) + 1, lane / 4))};
      operand[share][lane] = {taps[0].high, taps[1].high, taps[0].low, taps[1].low};
      for (int r = 0; r < kLaneRows; ++r) {
        float sum = 0.0f;
        for (int row = 0; row < kBlockRows; ++row) sum += tap(row, 2 * (lane % 4) + r);
        total[share][lane][r] = sum * static_cast<float>(kRowSum);
      }
    }
  }
};

// Of the lane's columns in two rows: sums of w x and w x^2 over a window's row.
struct RowMoments {
  float sum[kLaneRows][kColumns];
  float square[kLaneRows][kColumns];
};

// Over whole windows, or the part of them that has entered.
struct WindowMoments {
  Fragment sum[kColumns / 2];
  Fragment square[kColumns / 2];

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[j][i] = square[j][i] = 0.0f;
  }

  // To sums about a pivot lower by `delta`; `total` of the taps they hold, for either row.
  __device__ void move_pivot(float delta, const float (&total)[kLaneRows]) {
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float moved = fmaf(delta, total[i % 2], sum[j][i]);
        square[j][i] = fmaf(delta, sum[j][i] + moved, square[j][i]);
        sum[j][i] = moved;
      }
  }

  __device__ void add(const WindowMoments& other) {
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[j][i] += other.sum[j][i];
        square[j][i] += other.square[j][i];
      }
  }
};

// The moments of a block as operands.
class BlockOperands {
 public:
  __device__ explicit BlockOperands(const float (&x)[kLaneRows][kColumns]) {
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Operand operand(x[i / 2][2 * j + i % 2]);
        high_[j][i] = operand.high;
        low_[j][i] = operand.low;
      }
  }

  // Small products first: they keep their digits.
  __device__ void add_to(Fragment (&sums)[kColumns / 2], const uint4& taps) const {
    const std::uint32_t high[] = {taps.x, taps.y}, low[] = {taps.z, taps.w};
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) multiply_add(sums[j], low_[j], high);
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) multiply_add(sums[j], high_[j], low);
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) multiply_add(sums[j], high_[j], high);
  }

 private:
  std::uint32_t high_[kColumns / 2][4];
  std::uint32_t low_[kColumns / 2][4];
};

// The sums of one plane that are under way.
class ColumnSums {
 public:
  __device__ void clear() {
    nearly_complete_.clear();
    begun_.clear();
    pivot_ = 0.0f;
  }

  // A block enters, about `pivot`; the sums of the one before it are complete, about
  // `pivot_of_complete`.
  __device__ void take_block(const RowMoments& moments, float pivot, const ColumnTaps& taps,
                             WindowMoments& complete, float& pivot_of_complete) {
    const int lane = threadIdx.x % 32;
    const float delta = pivot - pivot_;
    const bool moves = __any_sync(0xffffffffu, delta != 0.0f);
    complete = nearly_complete_;
    pivot_of_complete = pivot_;
    nearly_complete_ = begun_;
    begun_.clear();
    if (moves) {
      nearly_complete_.move_pivot(-delta, taps.total[kBegins][lane]);
      WindowMoments last;
      last.clear();
      add_shares(BlockOperands(moments.sum), taps, last.sum, &WindowMoments::sum);
      add_shares(BlockOperands(moments.square), taps, last.square, &WindowMoments::square);
      last.move_pivot(delta, taps.total[kCompletes][lane]);
      complete.add(last);
    } else {
      add_shares(BlockOperands(moments.sum), taps, complete.sum, &WindowMoments::sum);
      add_shares(BlockOperands(moments.square), taps, complete.square, &WindowMoments::square);
    }
    pivot_ = pivot;
  }

 private:
  using Sums = Fragment[kColumns / 2];

  __device__ void add_shares(const BlockOperands& operands, const ColumnTaps& taps, Sums& complete,
                             Sums WindowMoments::* sums) {
    const auto& of_lane = taps.operand;
    const int lane = threadIdx.x % 32;
    operands.add_to(complete, of_lane[kCompletes][lane]);
    operands.add_to(nearly_complete_.*sums, of_lane[kIsMiddle][lane]);
    operands.add_to(begun_.*sums, of_lane[kBegins][lane]);
  }

  WindowMoments nearly_complete_;  // of the block that entered last: its next will complete them
  WindowMoments begun_;            // of the next block
  float pivot_ = 0.0f;             // of both
};

}  // namespace syncfree::ssim
