// Arithmetic of SSIM that CPU and CUDA share: formula, constants, taps, borders, pivot.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/data_range.h"
#include "core/dtype.h"
#include "ssim/ssim.h"

namespace syncfree::ssim {

// Explicit where the GPU computes, so that every instantiation of a kernel rounds alike; on the CPU
// the compiler contracts it where the instruction set has the instruction.
template <class T>
SYNCFREE_HD T multiply_add(T a, T b, T c) {
#if defined(__CUDA_ARCH__)
  return fma(a, b, c);
#else
  return a * b + c;
#endif
}

// NaN gives `floor`. Works on the compiler's vector types too.
template <class T>
SYNCFREE_HD T at_least(T x, T floor) {
#if defined(__CUDA_ARCH__)
  return fmax(x, floor);
#else
  return x > floor ? x : floor;
#endif
}

// A comparison with NaN is false, so NaN passes as it does in torch.clamp.
template <class Acc>
struct Clamp {
  bool enabled;
  Acc low;
  Acc high;

  SYNCFREE_HD Acc operator()(Acc x) const { return x < low ? low : (x > high ? high : x); }
};

template <class Acc>
Clamp<Acc> make_clamp(const DataRange& range) {
  return {range.source == DataRange::Source::kInterval, static_cast<Acc>(range.low),
          static_cast<Acc>(range.high)};
}

// The formula works on s = scale * (a + b) and d = a - b of the two images. `scale` is a power of
// two near 1 / (range * tap_sum), which keeps products of moments within float for any range; d
// goes without, which spares a multiplication a pixel and the sums of d^2 and |d| their unit.
template <class Acc>
struct Constants {
  Acc scale;
  Acc scale_squared;
  Acc tap_sum;   // sum of all weights of the window; 1 when taps are normalised
  Acc twice_c1;  // (k1 * range)^2 and (k2 * range)^2, doubled, in units of (scale * tap_sum)^2
  Acc twice_c2;
};

template <class Acc>
SYNCFREE_HD Constants<Acc> make_constants(double range, double k1, double k2,
                                          double tap_sum = 1.0) {
  constexpr int kLimit = 60;  // scale_squared stays a normal float
  int exponent = 0;
  const double size = fabs(range) * tap_sum;
  frexp(size > 0.0 && size < 1e300 ? size : tap_sum, &exponent);
  exponent = exponent < -kLimit ? -kLimit : (exponent > kLimit ? kLimit : exponent);
  const double scale = ldexp(1.0, -exponent);
  const double c1 = k1 * range * scale * tap_sum;
  const double c2 = k2 * range * scale * tap_sum;
  return {static_cast<Acc>(scale), static_cast<Acc>(scale * scale), static_cast<Acc>(tap_sum),
          static_cast<Acc>(2.0 * c1 * c1), static_cast<Acc>(2.0 * c2 * c2)};
}

// With means ms, md and variances Vs, Vd of s and d in the window,
//   SSIM = (ms^2 - md^2 + 2 C1) / (ms^2 + md^2 + 2 C1) * (Vs - Vd + 2 C2) / (Vs + Vd + 2 C2):
// four moments instead of five. With t = ms^2 + 2 C1 and u = Vs + 2 C2 that is one minus the
// deficit
//   2 (t Vd + u md^2) / ((t + md^2) (u + Vd)),
// which is exactly 0 for equal images, lies in [0, 2] once the variances are clamped at 0, and
// keeps its digits where SSIM is close to 1. The functions below leave the factor 2 * scale_squared
// out.
template <class T>
struct Terms {
  T t;
  T u;
  T md_squared;  // d is not scaled: these two want scale_squared beside t and u
  T vd;
};

// A NaN that the clamps swallow is still in t.
template <class T>
SYNCFREE_HD Terms<T> make_terms(T mean_s, T variance_s, T mean_d, T variance_d, T twice_c1,
                                T twice_c2) {
  return {multiply_add(mean_s, mean_s, twice_c1), at_least(variance_s, T{}) + twice_c2,
          mean_d * mean_d, at_least(variance_d, T{})};
}

template <class T>
SYNCFREE_HD T deficit_numerator(const Terms<T>& k) {
  return multiply_add(k.t, k.vd, k.u * k.md_squared);
}

template <class T>
SYNCFREE_HD T deficit_denominator(const Terms<T>& k, T scale_squared) {
  return multiply_add(k.md_squared, scale_squared, k.t) * multiply_add(k.vd, scale_squared, k.u);
}

// The contrast term (Vs - Vd + 2 C2) / (Vs + Vd + 2 C2) is one minus 2 * scale_squared * vd over
// this.
template <class T>
SYNCFREE_HD T contrast_denominator(const Terms<T>& k, T scale_squared) {
  return multiply_add(k.vd, scale_squared, k.u);
}

// Index of the pixel that stands at `i` when the axis is mirrored without repeating its edge, for
// -size < i < 2 * size - 1.
template <class Index>
SYNCFREE_HD constexpr Index mirror(Index i, Index size) {
  const Index from_start = i < 0 ? -i : i;
  const Index from_end = 2 * (size - 1) - from_start;
  return from_start < from_end ? from_start : from_end;
}

SYNCFREE_HD constexpr std::int64_t map_size(const Axis& axis, std::int64_t size) {
  return size + 2 * axis.pad - (axis.taps - 1);
}

// Weight of tap k before normalisation.
SYNCFREE_HD double raw_tap(const Axis& axis, int k) {
  if (axis.sigma <= 0.0) return 1.0;
  const double offset = (k - 0.5 * (axis.taps - 1)) / axis.sigma;
  return exp(-0.5 * offset * offset);
}

inline double raw_tap_sum(const Axis& axis) {
  double sum = 0.0;
  for (int k = 0; k < axis.taps; ++k) sum += raw_tap(axis, k);
  return sum;
}

// Normalised taps; the middle one takes up what rounding did to the sum of the others.
template <class Acc>
void fill_taps(const Axis& axis, Acc* taps) {
  const double sum = raw_tap_sum(axis);
  const int middle = axis.taps / 2;
  double others = 0.0;
  for (int k = 0; k < axis.taps; ++k) {
    taps[k] = static_cast<Acc>(raw_tap(axis, k) / sum);
    if (k != middle) others += static_cast<double>(taps[k]);
  }
  taps[middle] = static_cast<Acc>(1.0 - others);
}

// The pivot of a plane (one channel of one image): the mean of 32 pixels of preds on a fixed grid.
// Subtracting it from the pixels saves the digits that E[x^2] - E[x]^2 would cancel.
inline constexpr int kPivotSamples = 32;

struct Position {
  std::int64_t z;
  std::int64_t y;
  std::int64_t x;
};

SYNCFREE_HD constexpr Position pivot_sample(int k, std::int64_t depth, std::int64_t height,
                                            std::int64_t width) {
  const int row = k / 4, column = k % 4, slice = 5 * row % 8;
  return {(2 * slice + 1) * depth / 16, (2 * row + 1) * height / 16, (2 * column + 1) * width / 8};
}

// Zero where the samples say nothing.
template <class Acc>
SYNCFREE_HD Acc pivot_from_sum(Acc sum) {
  const Acc twice = sum * Acc(2.0 / kPivotSamples);
  return twice - twice == Acc(0) ? Acc(0.5) * twice : Acc(0);
}

// `load(z, y, x)` reads a pixel of preds as the kernel does, clamp included. Sums in pairs, so that
// equal samples have exactly their value as pivot.
template <class Acc, class Load>
Acc plane_pivot(std::int64_t depth, std::int64_t height, std::int64_t width, Load&& load) {
  Acc sums[kPivotSamples];
  for (int k = 0; k < kPivotSamples; ++k) {
    const Position p = pivot_sample(k, depth, height, width);
    sums[k] = load(p.z, p.y, p.x);
  }
  for (int step = kPivotSamples / 2; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) sums[k] += sums[k + step];
  return pivot_from_sum(sums[0]);
}

}  // namespace syncfree::ssim
