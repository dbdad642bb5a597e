// Means and variances of a thread's run of outputs in a patch, along a column or a row.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

inline constexpr int kRun = 8;           // outputs of one thread, below or beside each other
inline constexpr int kPivotOutputs = 4;  // of these that share a pivot

// Normalised; the middle one takes up what rounding did to the sum of the others.
template <class Taps>
struct PatchTaps {
  float tap[Taps::kTaps];

  SYNCFREE_HD constexpr PatchTaps() : tap() {
    const Taps raw;
    double others = 0.0;
    for (int k = 0; k < Taps::kTaps; ++k) {
      tap[k] = static_cast<float>(static_cast<double>(raw.tap[k]) / raw.row_sum);
      if (k != Taps::kHalo) others += static_cast<double>(tap[k]);
    }
    tap[Taps::kHalo] = static_cast<float>(1.0 - others);
  }
};

// Means and variances under a run of windows. Value i is x[i] or, with `variances`, a column of
// pixels with mean x[i] and variance `variances[i]`.
//
// The pivot of neighbouring outputs lies in the middle of all their windows: what they hold near it
// bounds its distance from their means by their variance. A NaN there is in all of them.
template <class Taps>
class RunFilter {
 public:
  static constexpr int kSpan = kRun + 2 * Taps::kHalo;

  struct Moments {
    float mean[kRun];
    float variance[kRun];
  };

  template <class... Variances>
  static __device__ Moments filter(const float (&x)[kSpan], const Variances&... variances) {
    constexpr PatchTaps<Taps> kTaps{};
    Moments moments;
#pragma unroll
    for (int first = 0; first < kRun; first += kPivotOutputs) {
      const int middle = first + Taps::kHalo + kPivotOutputs / 2;
      const float pivot = 0.5f * (x[middle - 1] + x[middle]);
      float sum[kPivotOutputs], square[kPivotOutputs];
#pragma unroll
      for (int i = 0; i < kPivotOutputs + 2 * Taps::kHalo; ++i) {
        const float offset = __fsub_rn(x[first + i], pivot);
        const float squared = square_of(offset, first + i, variances...);
#pragma unroll
        for (int o = 0; o < kPivotOutputs; ++o) {
          const int k = i - o;
          if (k < 0 || k >= Taps::kTaps) continue;
          sum[o] = k == 0 ? __fmul_rn(kTaps.tap[k], offset) : fmaf(kTaps.tap[k], offset, sum[o]);
          square[o] =
              k == 0 ? __fmul_rn(kTaps.tap[k], squared) : fmaf(kTaps.tap[k], squared, square[o]);
        }
      }
#pragma unroll
      for (int o = 0; o < kPivotOutputs; ++o) {
        moments.mean[first + o] = pivot + sum[o];
        moments.variance[first + o] = fmaf(-sum[o], sum[o], square[o]);
      }
    }
    return moments;
  }

 private:
  static __device__ float square_of(float x, int) { return __fmul_rn(x, x); }
  static __device__ float square_of(float x, int i, const float (&variances)[kSpan]) {
    return fmaf(x, x, variances[i]);
  }
};

}  // namespace syncfree::ssim
