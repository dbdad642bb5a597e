// Arithmetic of SSIM that CPU and CUDA share: constants, taps, borders.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/clamp.h"
#include "core/dtype.h"
#include "ssim/ssim.h"

namespace syncfree::ssim {

// The formula works on s = scale * (a + b) and d = scale * (a - b) of the two images. `scale` is a
// power of two near 1 / (range * tap_sum), which keeps products of four window sums within float
// for any range, even where pixels lie far outside it.
template <class Acc>
struct Constants {
  Acc scale;
  Acc twice_c1;  // (k1 * range)^2 and (k2 * range)^2, doubled, in units of (scale * tap_sum)^2
  Acc twice_c2;
};

// `tap_sum` is the sum of all weights of the window, 1 if the taps are normalized.
template <class Acc>
SYNCFREE_HD Constants<Acc> make_constants(double range, double k1, double k2,
                                          double tap_sum = 1.0) {
  range += range - range;      // an infinite range becomes NaN
  constexpr int kLimit = 120;  // scale stays a normal float
  int exponent = 0;
  const double size = fabs(range) * tap_sum;
  frexp(size > 0.0 && size < 1e300 ? size : tap_sum, &exponent);
  exponent = exponent < -kLimit ? -kLimit : (exponent > kLimit ? kLimit : exponent);
  const double scale = ldexp(1.0, -exponent);
  const double c1 = k1 * range * scale * tap_sum;
  const double c2 = k2 * range * scale * tap_sum;
  return {static_cast<Acc>(scale), static_cast<Acc>(2.0 * c1 * c1),
          static_cast<Acc>(2.0 * c2 * c2)};
}

// The mean of `count` values whose deficits add up to `deficit`. Rounding must not carry it below
// -1; NaN passes through.
SYNCFREE_HD double mean_from_deficit(double deficit, double count) {
  const double mean = 1.0 - deficit / count;
  return mean < -1.0 ? -1.0 : mean;
}

SYNCFREE_HD double finite_or_zero(double x) {
  return x - x == 0.0 ? x : 0.0;
}

// Whether all denominators, which are at least the product of the two constants, are normal floats.
// The approximate inverse of a subnormal is infinite, and gives NaN where the numerator is 0.
inline bool has_normal_denominators(const Problem& problem) {
  constexpr double kLeast = 0x1p-28;
  return std::fabs(problem.k1) >= kLeast && std::fabs(problem.k2) >= kLeast;
}

// Index of the pixel at position `i` of an axis that is mirrored without repeating its edge, for
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

// Weight of tap k before normalization.
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

// Normalized taps. The middle one absorbs the rounding errors of the others, so that they sum to 1.
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

}  // namespace syncfree::ssim
