// From the window sums of a lane's columns to SSIM, and the sums over one unit.
#pragma once

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

struct StripMoments {
  float s[kColumns];
  float ss[kColumns];
  float d[kColumns];
  float dd[kColumns];
};

// One instruction, correct to about one unit in the last place.
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// With kExtras whatever else the job asks for beside the value.
template <bool kExtras>
class StripOutputs {
 public:
  __device__ StripOutputs(const Job<float>& job, const Constants<float>& constants)
      : job_(job), constants_(constants) {}

  __device__ void start(std::int64_t plane, int first_column) {
    plane_ = plane;
    first_column_ = first_column;
    clear();
  }

  // The moments are relative to the pivots.
  __device__ void add_row(const StripMoments& sums, float pivot_s, float pivot_d, int y) {
    constexpr StripTaps kTaps;
    constexpr float kTapSum = static_cast<float>(kTaps.row_sum * kTaps.row_sum);
    const float unit = constants_.scale_squared;
    const float twice_c1 = constants_.twice_c1, twice_c2 = constants_.twice_c2;
    float half_deficit[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float mean_s = fmaf(pivot_s, kTapSum, sums.s[c]);
      const float mean_d = fmaf(pivot_d, kTapSum, sums.d[c]);
      const float variance_s = fmaf(-sums.s[c], sums.s[c], fmaf(sums.ss[c], kTapSum, twice_c2));
      const float variance_d = fmaf(-sums.d[c], sums.d[c], __fmul_rn(sums.dd[c], kTapSum));
      // make_terms() with the 2 C2 folded into the clamp.
      const Terms<float> terms{fmaf(mean_s, mean_s, twice_c1), fmaxf(variance_s, twice_c2),
                               __fmul_rn(mean_d, mean_d), fmaxf(variance_d, 0.0f)};
      const float numerator = deficit_numerator(terms);
      const float inverse = reciprocal(deficit_denominator(terms, unit));
      deficit_[c] = fmaf(numerator, inverse, deficit_[c]);
      if constexpr (kExtras) {
        half_deficit[c] = __fmul_rn(numerator, inverse);
        if (job_.results.slots[kContrastDeficit] != nullptr) add_contrast(y, c, terms);
      }
    }
    if constexpr (kExtras)
      if (job_.map != nullptr) store_map(y, half_deficit);
  }

  // A unit counts the rows that enter while its outputs leave, so that each row is counted once,
  // wherever a warp begins.
  __device__ void add_errors(const float* d, int row, int begin) {
    if (row >= height() || row < (begin == 0 ? 0 : begin + kHalo)) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float x = first_column_ + c < width() ? d[c] : 0.0f;
      squared_ = fmaf(x, x, squared_);
      absolute_ += fabsf(x);
    }
  }

  __device__ void flush(std::int64_t unit) {
    const double twice_unit = 2.0 * static_cast<double>(constants_.scale_squared);
    double* const* slots = job_.results.slots;
    write(slots[kDeficit], unit, twice_unit * over_columns(deficit_));
    if constexpr (kExtras) {
      if (slots[kContrastDeficit] != nullptr)
        write(slots[kContrastDeficit], unit, twice_unit * over_columns(contrast_));
      if (slots[kSquaredError] != nullptr) write(slots[kSquaredError], unit, squared_);
      if (slots[kAbsoluteError] != nullptr) write(slots[kAbsoluteError], unit, absolute_);
    }
    clear();
  }

 private:
  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }
  __device__ int width() const { return static_cast<int>(job_.geometry.size[2]); }

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) deficit_[c] = contrast_[c] = 0.0f;
    squared_ = absolute_ = 0.0f;
  }

  __device__ double over_columns(const float (&x)[kColumns]) const {
    double sum = 0.0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (first_column_ + c < width()) sum += static_cast<double>(x[c]);
    return sum;
  }

  __device__ static void write(double* slots, std::int64_t unit, double x) {
    const double sum = warp_sum(x);
    if (threadIdx.x % 32 == 0) slots[unit] = sum;
  }

  __device__ void store_map(int y, const float (&half_deficit)[kColumns]) const {
    const std::int64_t at = (plane_ * height() + y) * width() + first_column_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float ssim = fmaf(-2.0f * constants_.scale_squared, half_deficit[c], 1.0f);
      if (first_column_ + c < width()) store_map_value(job_, at + c, ssim);
    }
  }

  __device__ void add_contrast(int y, int c, const Terms<float>& terms) {
    const int column = first_column_ + c;
    if (y < kHalo || y >= height() - kHalo || column < kHalo || column >= width() - kHalo) return;
    const float inverse = reciprocal(contrast_denominator(terms, constants_.scale_squared));
    contrast_[c] = fmaf(terms.vd, inverse, contrast_[c]);
  }

  const Job<float>& job_;
  const Constants<float>& constants_;
  std::int64_t plane_;
  int first_column_;
  float deficit_[kColumns];
  float contrast_[kColumns];
  float squared_;
  float absolute_;
};

}  // namespace syncfree::ssim
