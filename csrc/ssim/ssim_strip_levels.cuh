// Decides where a strip needs pivots other than zero, and which, from the rows that enter. The
// level of a pair of rows is the mean of a lane's pixels in it, and becomes the lane's pivot.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

inline constexpr unsigned kWarp = 0xffffffffu;

// A row of s or d in shared memory. Its first column is at kMargin, to keep vectors aligned.
inline constexpr int kMargin = 8;
inline constexpr int kRowFloats = kStripColumns + 2 * kMargin;

struct SumDifference {
  float s;
  float d;
};

// Sums over a lane's pixels of a few rows.
struct alignas(16) PixelSums {
  SumDifference sum;
  SumDifference square;

  template <int kCount>
  static __device__ PixelSums of(const float (&s)[kCount], const float (&d)[kCount]) {
    return {{over(s), over(d)}, {over_squares(s), over_squares(d)}};
  }

  __device__ PixelSums operator+(const PixelSums& other) const {
    return {{sum.s + other.sum.s, sum.d + other.sum.d},
            {square.s + other.square.s, square.d + other.square.d}};
  }

  static __device__ float over(const float (&x)[4]) { return (x[0] + x[1]) + (x[2] + x[3]); }
  static __device__ float over(const float (&x)[2]) { return x[0] + x[1]; }

  template <int kCount>
  static __device__ float over_squares(const float (&x)[kCount]) {
    float sum = __fmul_rn(x[0], x[0]);
#pragma unroll
    for (int c = 1; c < kCount; ++c) sum = fmaf(x[c], x[c], sum);
    return sum;
  }
};

// What a lane keeps of earlier rows; in shared memory, since registers are scarce.
struct LaneHistory {
  static constexpr int kPairs = 3;
  PixelSums last_pair;
  SumDifference level[kPairs];  // of the previous pairs, the latest first
  // How many pairs, including the current one, are to be taken about pivots other than zero: of s
  // or d, and of d alone. The same in the whole warp.
  int about_pivots;
  int d_about_pivots;
};

// Rounding leaves up to 9e-7 of the squared distance between a window's mean and its pivot in the
// variance V, and the formula divides by V + 2 C2. So zero is a good enough pivot where
//   mean^2 < care * 2 C2 + kSpread * V,
// judged by the mean and variance of a lane's pixels in four rows, and by nothing else, so that it
// does not matter where the warp began. Of 16 pixels of noise about zero, one set in a million
// seems to need a pivot. With a spread of 2 it would be one in 20,000, and each takes 31 other
// lanes, or 127, along the slower way.
//
// Where only a mean over many windows is wanted, single windows may be off by some 1e-4. An error
// in the variance of s counts where d varies, which makes it different in each window, and the taps
// give it no common sign (`StripTaps`): means of photographs are off by 3e-7 at most. Windows that
// repeat, as in patterns on one level, repeat their errors. Where d needs pivots, s takes them too.
template <class Taps>
class LevelRules {
 public:
  static __device__ bool s_needs_none(const PixelSums& sums, float twice_c2) {
    return needs_none(sums.sum.s, sums.square.s, 2.0f, twice_c2);
  }
  // The rule for s in a mean: a bound on the square of s summed over those pixels, which is
  // computed once.
  static __device__ float bound_for_mean(bool over_many_windows, float twice_c2) {
    // 1024: |s - level| below 1.36 times the data range, so that one pair of rows in 40 of
    // photographs needs pivots.
    return (over_many_windows ? 1024.0f : 2.0f) * kAbsolute * twice_c2;
  }
  static __device__ bool s_is_within(float bound, const PixelSums& sums) {
    return __fmul_rn(sums.sum.s, sums.sum.s) < bound;  // false for NaN and infinities
  }
  // An error in the variance of d counts more than one in that of s where that variance is small.
  static __device__ bool d_needs_none(const PixelSums& sums, float twice_c2) {
    return needs_none(sums.sum.d, sums.square.d, 0.5f, twice_c2);
  }

  // The level of the lane's four columns in the pair of rows in shared memory, whose sums are
  // `sums`.
  template <int kPitch = kRowFloats>
  static __device__ SumDifference level_of_pair(const PixelSums& sums, const float* own) {
    return level_of(sums, [own](int i) {
      const float* const s = own + i / kColumns * 2 * kPitch + i % kColumns;
      return SumDifference{s[0], s[kPitch]};
    });
  }
  // The same for eight pixels, given by `pixel`: those of the first row before those of the second.
  template <class Pixel>
  static __device__ SumDifference level_of(const PixelSums& sums, const Pixel& pixel) {
    constexpr float kShare = 0.5f / kColumns;
    const SumDifference level{sums.sum.s * kShare, sums.sum.d * kShare};
    const bool usual = is_usual(level.s) && is_usual(level.d);
    return __all_sync(kWarp, usual) ? level : level_of_usual_pixels(pixel);
  }

  // Not beyond about 1024 times the data range.
  static __device__ bool is_usual(float x) { return fabsf(x) < kUsual; }

 private:
  static constexpr int kSpread = 4;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<Taps>);
  static constexpr float kUsual = 1024.0f / kTapSum;
  static constexpr float kPixels = 4.0f * kColumns;
  static constexpr float kAbsolute = kPixels * kPixels / (kTapSum * kTapSum);

  static __device__ bool needs_none(float sum, float square, float care, float twice_c2) {
    constexpr float kMeanWeight = 1.0f / (1.0f + kSpread);
    const float limit =
        fmaf(kPixels * kSpread * kMeanWeight, square, care * kAbsolute * kMeanWeight * twice_c2);
    return __fmul_rn(sum, sum) < limit;  // false for NaN and infinities
  }

  // Without infinities, NaNs and extreme outliers, which would spoil windows that do not hold them.
  // If all pixels lie far outside the data range, none of them is an outlier.
  template <class Pixel>
  static __device__ SumDifference level_of_usual_pixels(const Pixel& pixel) {
    float least = INFINITY;
    for (int i = 0; i < 2 * kColumns; ++i) least = fminf(least, size(pixel(i)));
    const float limit = fmaxf(kUsual, 16.0f * least);
    SumDifference sum{0.0f, 0.0f};
    int count = 0;
    for (int i = 0; i < 2 * kColumns; ++i) {
      const SumDifference x = pixel(i);
      if (!(fabsf(x.s) < limit && fabsf(x.d) < limit)) continue;
      sum.s += x.s;
      sum.d += x.d;
      ++count;
    }
    const float share = 1.0f / static_cast<float>(max(count, 1));
    return {sum.s * share, sum.d * share};
  }

  static __device__ float size(const SumDifference& x) { return fmaxf(fabsf(x.s), fabsf(x.d)); }
};

}  // namespace syncfree::ssim
