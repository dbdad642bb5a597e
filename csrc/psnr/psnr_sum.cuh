// A thread's share of the squared error.
#pragma once

#include "psnr/psnr_load_pixels.cuh"

namespace syncfree::psnr {

template <class T, class Acc>
__device__ Acc squared_error(const Pair<T>& raw, const Clamp<Acc>& clamp) {
  // Bytes: four squares per instruction. The sum stays below 2^24, where float is exact too, so
  // both branches give the same bits.
  if constexpr (sizeof(T) == 1) {
    if (!clamp.enabled) {
      unsigned sum = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned d = __vabsdiffu4(raw.preds.word[k], raw.target.word[k]);
        sum = __dp4a(d, d, sum);
      }
      return static_cast<Acc>(sum);
    }
  }
  Acc sum = 0;
#pragma unroll
  for (int k = 0; k < kVectorOf<T>; ++k) {
    const Acc d = clamp(to<Acc>(raw.preds[k])) - clamp(to<Acc>(raw.target[k]));
    sum += d * d;
  }
  return sum;
}

// Adds one thread's share of the block's group [base, base + threads * vector * kUnroll) of each
// plane's piece of `count` elements: in the accumulator type over the group, in double above it.
template <int kThreads, int kUnroll, class Loader>
__device__ void add_group(const Loader& loader, const Clamp<typename Loader::Acc>& clamp, int base,
                          int count, double (&sum)[Loader::kPlanes]) {
  constexpr int kAhead = Loader::kAhead;
  constexpr int kStep = kThreads * Loader::kVector;
  const int first = base + static_cast<int>(threadIdx.x) * Loader::kVector;
  typename Loader::Acc group[Loader::kPlanes] = {};
  if (kAhead > 0 && count - base >= kStep * kUnroll) {
    if constexpr (kAhead > 0) {
      static_assert(kUnroll % kAhead == 0);
#pragma unroll 1
      for (int begin = 0; begin < kUnroll; begin += kAhead) {
        typename Loader::Raw raw[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) raw[u] = loader.load(first + (begin + u) * kStep);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
#pragma unroll
          for (int p = 0; p < Loader::kPlanes; ++p)
            group[p] += squared_error(loader.pair(raw[u], p), clamp);
      }
    }
  } else {
#pragma unroll 1
    for (int i = first; i < min(count, base + kStep * kUnroll); i += kStep) {
#pragma unroll
      for (int p = 0; p < Loader::kPlanes; ++p)
        group[p] += loader.squared_error(p, i, min(count - i, Loader::kVector), clamp);
    }
  }
#pragma unroll
  for (int p = 0; p < Loader::kPlanes; ++p) sum[p] += static_cast<double>(group[p]);
}

}  // namespace syncfree::psnr
