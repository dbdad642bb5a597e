// The loss of a batch, found along with its gradients by walks and rings.
#pragma once

#include "core/block_sum.cuh"
#include "core/last_block.cuh"
#include "ssim/ssim_backward_pieces.cuh"
#include "ssim/ssim_finish.cuh"

namespace syncfree::ssim {

// Splits x into a multiple of 2^-25 and the rest, rounded to a multiple of 2^-54. A double adds up
// 2^25 of either without rounding if they are about one or less; beyond that, or where numbers are
// far larger, it rounds as usual.
__device__ inline ExactSum split(double x) {
  constexpr double kHighCarrier = 1.5 * (1 << 27);  // its last bit is worth 2^-25
  constexpr double kLowCarrier = 0.375;             // 2^-54
  const double high = (x + kHighCarrier) - kHighCarrier;
  return {high, ((x - high) + kLowCarrier) - kLowCarrier};
}

// Adds to a sum whose bits do not depend on the order of its additions.
__device__ inline void add_in_any_order(ExactSum& sum, float x) {
  const ExactSum parts = split(static_cast<double>(x));
  sum.high += parts.high;
  sum.low += parts.low;
}

// The sums of one lane. In shared memory, since registers are scarce.
struct LaneTotals {
  ExactSum deficit;
  ExactSum absolute_error;

  // The rows of windows whose deficits count: those of the piece, or none if the lane has no
  // columns.
  int top;
  int end;

  __device__ LaneTotals& operator+=(const LaneTotals& other) {
    add(deficit, other.deficit);
    add(absolute_error, other.absolute_error);
    return *this;
  }

 private:
  __device__ static void add(ExactSum& sum, const ExactSum& other) {
    sum.high += other.high;
    sum.low += other.low;
  }
};

// Adds up the sums of all blocks, each of which hands in its own once all its pieces are done.
class WalkSum {
 public:
  __device__ explicit WalkSum(const WalkResults& results) : results_(results) {}

  // Called by one whole warp of each block; the last block to arrive computes the loss.
  __device__ void hand_in(const LaneTotals& lane) const {
    WalkTotals& totals = *results_.totals;
    add(totals.deficit, lane.deficit);
    if (results_.wants_error) add(totals.absolute_error, lane.absolute_error);
    if (threadIdx.x % 32 == 0 && is_last_arrival(&totals.ticket, 1, gridDim.x)) finish(totals);
  }

 private:
  __device__ static void add(ExactSum& total, const ExactSum& of_lane) {
    const double high = warp_sum(of_lane.high), low = warp_sum(of_lane.low);
    if (threadIdx.x % 32 != 0) return;
    atomicAdd(&total.high, high);
    atomicAdd(&total.low, low);
  }

  __device__ static double take(ExactSum& total) {
    const double sum = __ldcg(&total.high) + __ldcg(&total.low);
    total = {};
    return sum;
  }

  __device__ void finish(WalkTotals& totals) const {
    const double value = mean_from_deficit(2.0 * take(totals.deficit), results_.windows);
    double loss = results_.weight * (1.0 - value);
    if (results_.wants_error) {
      const double sum = take(totals.absolute_error) / static_cast<double>(results_.scale);
      loss += (1.0 - results_.weight) * (sum / results_.windows);
    }
    *results_.loss = static_cast<float>(loss);
  }

  const WalkResults& results_;
};

}  // namespace syncfree::ssim
