// The mean value and the mean absolute error of a batch, found on the way to the gradients.
#pragma once

#include <cuda/atomic>

#include "core/block_sum.cuh"
#include "core/last_block.cuh"
#include "ssim/ssim_backward_job.cuh"
#include "ssim/ssim_finish.cuh"

namespace syncfree::ssim {

inline constexpr int kUnitRows = 8;  // planes are cut at multiples of these

// A multiple of 2^-25: double adds up such numbers without rounding as long as they stay below
// 2^28, so that no order changes a bit. Beyond, where 2^28 pixels are all as bad as can be, or lie
// far outside the data range, it rounds as usual.
__device__ inline double without_low_digits(float x) {
  constexpr double kCarrier = 1.5 * (1 << 27);  // the last of its 53 bits counts 2^-25
  return (static_cast<double>(x) + kCarrier) - kCarrier;
}

// Sums of one lane, in shared memory since registers are short.
struct LaneTotals {
  double deficit;
  double absolute_error;

  // Where the lane's columns count, the first row of a piece; a row that never comes elsewhere.
  int top;
};

// Of all warps.
class WalkSum {
 public:
  __device__ explicit WalkSum(const WalkResults& results) : results_(results) {}

  // By a whole warp, once; `warps` do so in all. The last one finishes.
  __device__ void hand_in(const LaneTotals& lane, unsigned warps) const {
    const double deficit = warp_sum(lane.deficit);
    const double absolute_error = warp_sum(lane.absolute_error);
    if (threadIdx.x % 32 != 0) return;
    WalkTotals& totals = *results_.totals;
    atomicAdd(&totals.deficit, deficit);
    if (results_.mean_absolute_error != nullptr) atomicAdd(&totals.absolute_error, absolute_error);
    if (is_last_arrival(&totals.ticket, 1, warps)) finish(totals);
  }

 private:
  __device__ void finish(WalkTotals& totals) const {
    const double value = mean_from_deficit(2.0 * __ldcg(&totals.deficit), results_.windows);
    *results_.value = static_cast<float>(value);
    totals.deficit = 0.0;
    if (results_.mean_absolute_error == nullptr) return;
    const double sum = __ldcg(&totals.absolute_error) / static_cast<double>(results_.scale);
    *results_.mean_absolute_error = static_cast<float>(sum / results_.windows);
    totals.absolute_error = 0.0;
  }

  const WalkResults& results_;
};

}  // namespace syncfree::ssim
