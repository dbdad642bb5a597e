// Means and variances of a thread's run of outputs in a patch, along a column or a row.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

inline constexpr int kRun = 8;           // outputs of one thread, below or beside each other
inline constexpr int kPivotOutputs = 4;  // neighboring ones that share a pivot

// Means and variances under a run of windows. The values are pixels or, in the second pass, results
// of the first, with a mean and a variance each. Taps are scaled so that the end taps are 1; so
// means come out multiplied by the sum of the taps, and variances by its square.
//
// The pivot of neighboring outputs comes from the middle of all their windows. Since each window
// holds the pivot's pixels, its own variance bounds the distance between pivot and mean. A NaN in
// the pivot is in all of these windows.
template <class Taps>
class RunFilter {
 public:
  static constexpr int kSpan = kRun + 2 * Taps::kHalo;

  struct Moments {
    float mean[kRun];
    float variance[kRun];
  };

  // The values are pixels, to be multiplied by `scale`.
  static __device__ Moments filter_pixels(const float (&x)[kSpan], float scale) {
    return filter([&](int i, float pivot) { return fmaf(x[i], scale, -pivot); },
                  [&](int i) { return x[i]; }, 0.5f * scale,
                  [](float offset, int) { return __fmul_rn(offset, offset); });
  }

  static __device__ Moments filter_means(const float (&x)[kSpan], const float (&variances)[kSpan]) {
    return filter([&](int i, float pivot) { return __fsub_rn(x[i], pivot); },
                  [&](int i) { return x[i]; }, 0.5f,
                  [&](float offset, int i) { return fmaf(offset, offset, variances[i]); });
  }

 private:
  template <class Offset, class Value, class Square>
  static __device__ Moments filter(Offset offset_of, Value value, float half, Square square_of) {
    constexpr Taps kTaps{};
    constexpr auto kSum = static_cast<float>(kTaps.row_sum);
    Moments moments;
#pragma unroll
    for (int first = 0; first < kRun; first += kPivotOutputs) {
      const int middle = first + Taps::kHalo + kPivotOutputs / 2;
      const float pivot = fmaf(half, value(middle - 1), __fmul_rn(half, value(middle)));
      float sum[kPivotOutputs], square[kPivotOutputs];
#pragma unroll
      for (int i = 0; i < kPivotOutputs + 2 * Taps::kHalo; ++i) {
        const float offset = offset_of(first + i, pivot);
        const float squared = square_of(offset, first + i);
#pragma unroll
        for (int o = 0; o < kPivotOutputs; ++o) {
          const int k = i - o;
          if (k < 0 || k >= Taps::kTaps) continue;
          sum[o] = k == 0 ? offset : fmaf(kTaps.tap[k], offset, sum[o]);
          square[o] = k == 0 ? squared : fmaf(kTaps.tap[k], squared, square[o]);
        }
      }
#pragma unroll
      for (int o = 0; o < kPivotOutputs; ++o) {
        moments.mean[first + o] = fmaf(kSum, pivot, sum[o]);
        moments.variance[first + o] = fmaf(-sum[o], sum[o], __fmul_rn(kSum, square[o]));
      }
    }
    return moments;
  }
};

}  // namespace syncfree::ssim
