// From the window sums of a lane's columns to SSIM, and to the sums over one unit.
#pragma once

#include "ssim/ssim_strip_levels.cuh"
#include "ssim/ssim_strip_task.h"
#include "ssim/ssim_strip_window.cuh"
#include "ssim/ssim_terms.cuh"
#include "ssim/ssim_unit_sums.cuh"

namespace syncfree::ssim {

struct StripMoments {
  float s[kColumns];
  float ss[kColumns];
  float d[kColumns];
  float dd[kColumns];
};

template <StripTask kTask, class Taps>
class StripOutputs {
 public:
  __device__ StripOutputs(const Job<float>& job, const Constants<float>& constants)
      : job_(job), constants_(constants) {}

  // Whether the main sum leaves the border out: that of contrast always does, that of similarity if
  // windows stay inside the image.
  __device__ bool leaves_border_out() const {
    return kIsScale<kTask> || (kTask == StripTask::kAnything && job_.leaves_border_out());
  }

  __device__ void start(int first_column) {
    first_column_ = first_column;
    clear();
  }

  // `zero_s` and `zero_d` are the window sums of the values that the moments are about; without
  // `zero_d` that of d is zero. A row that does not count goes all the way too: across a branch the
  // compiler could not interleave the formula with the next row.
  template <class... ZeroD>
  __device__ void add_row(const StripMoments& sums, int y, bool counts, float zero_s,
                          ZeroD... zero_d) {
    if constexpr (kIsScale<kTask>) {
      add_contrasts(sums, counts);
      return;
    }
    const float twice_c1 = constants_.twice_c1, twice_c2 = constants_.twice_c2;
    float numerator[kColumns], inverse[kColumns];
    Terms<float> terms[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float mean_s = sums.s[c] + zero_s;
      const float mean_d = (sums.d[c] + ... + zero_d);
      terms[c] = {fmaf(mean_s, mean_s, twice_c1), term_u(sums, c, twice_c2),
                  __fmul_rn(mean_d, mean_d), term_vd(sums, c)};
      numerator[c] = deficit_numerator(terms[c]);
      inverse[c] = inverse_of(deficit_denominator(terms[c], numerator[c]));
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = fmaf(numerator[c], inverse[c], deficit_[c]);
      deficit_[c] = counts ? sum : deficit_[c];
    }
    if constexpr (kTask == StripTask::kAnything) {
      if (!counts) return;
      if (job_.results.contrast != nullptr)
        for (int c = 0; c < kColumns; ++c) add_contrast(y, c, terms[c]);
    }
  }

  __device__ bool has_column(int c) const { return first_column_ + c < width(); }

  // Adds the errors of a row, if the image has that row. `squared` is the sum of d^2 over the
  // lane's columns, which the test for pivots computes anyway; it is used where the image has
  // either all or none of them.
  template <bool kWholeLanes>
  __device__ void add_errors(const float (&d)[kColumns], float squared, int row) {
    float error[kColumns], size[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      error[c] = kWholeLanes || has_column(c) ? d[c] : 0.0f;
      size[c] = fabsf(error[c]);
    }
    if constexpr (!kWholeLanes) squared = PixelSums::over_squares(error);
    const bool counts = static_cast<unsigned>(row) < static_cast<unsigned>(height());
    squared = squared_ + squared;
    const float absolute = absolute_ + PixelSums::over(size);
    squared_ = counts ? squared : squared_;
    absolute_ = counts ? absolute : absolute_;
  }

  // Drops what the first rows of a walk added, whose windows were not complete. Their errors belong
  // to the units above, if there are any.
  __device__ void forget(bool keeps_errors) {
    const float squared = squared_, absolute = absolute_;
    clear();
    if (!keeps_errors) return;
    squared_ = squared;
    absolute_ = absolute;
  }

  // Reduces all sums before it stores the first, so that their latencies overlap.
  __device__ void flush(std::int64_t unit, UnitSums& sums) {
    double of_unit[kQuantities] = {};
    if constexpr (kIsScale<kTask>)
      of_unit[kContrastDeficit] = warp_sum(2.0 * over_cropped_columns(contrast_));
    else
      of_unit[kDeficit] = warp_sum(
          2.0 * (leaves_border_out() ? over_cropped_columns(deficit_) : over_columns(deficit_)));
    if constexpr (kTask == StripTask::kAnything)
      of_unit[kContrastDeficit] = warp_sum(2.0 * over_columns(contrast_));
    if constexpr (kAddsErrors<kTask>) {
      const auto unscaled = static_cast<double>(inverse_of_power(constants_.scale));
      of_unit[kSquaredError] = warp_sum(own(squared_) * unscaled * unscaled);
      of_unit[kAbsoluteError] = warp_sum(own(absolute_) * unscaled);
    }
    clear();
    if (threadIdx.x % 32 == 0) sums.add<kTask>(job_.results, unit, of_unit);
  }

 private:
  static constexpr int kHalo = Taps::kHalo;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<Taps>);

  // As in make_terms(), with 2 C2 folded into the clamp. It is added to the squared sum: an
  // instruction takes one constant, and beside kTapSum 2 C2 would need a register.
  __device__ static float term_u(const StripMoments& sums, int c, float twice_c2) {
    return at_least(fmaf(sums.ss[c], kTapSum, fmaf(-sums.s[c], sums.s[c], twice_c2)), twice_c2);
  }
  __device__ static float term_vd(const StripMoments& sums, int c) {
    return at_least(fmaf(sums.dd[c], kTapSum, -__fmul_rn(sums.d[c], sums.d[c])), 0.0f);
  }

  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }
  __device__ int width() const { return static_cast<int>(job_.geometry.size[2]); }
  __device__ static bool in_crop(int i, int size) { return i >= kHalo && i < size - kHalo; }

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) deficit_[c] = contrast_[c] = 0.0f;
    squared_ = absolute_ = 0.0f;
  }

  __device__ double over_columns(const float (&x)[kColumns]) const {
    double sum = 0.0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum += static_cast<double>(has_column(c) ? x[c] : 0.0f);
    return sum;
  }

  __device__ double over_cropped_columns(const float (&x)[kColumns]) const {
    double sum = 0.0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      sum += static_cast<double>(in_crop(first_column_ + c, width()) ? x[c] : 0.0f);
    return sum;
  }

  __device__ double own(float x) const { return static_cast<double>(has_column(0) ? x : 0.0f); }

  __device__ void add_contrast(int y, int c, const Terms<float>& terms) {
    if (!in_crop(y, height()) || !in_crop(first_column_ + c, width())) return;
    const float inverse = inverse_of(contrast_denominator(terms));
    contrast_[c] = fmaf(terms.vd, inverse, contrast_[c]);
  }

  // As above without the means, which contrast does not need. `counts` leaves out rows of the
  // border; its columns are left out when columns are summed.
  __device__ void add_contrasts(const StripMoments& sums, bool counts) {
    float vd[kColumns], inverse[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Terms<float> terms{0.0f, term_u(sums, c, constants_.twice_c2), 0.0f, term_vd(sums, c)};
      vd[c] = terms.vd;
      inverse[c] = inverse_of(contrast_denominator(terms));
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = fmaf(vd[c], inverse[c], contrast_[c]);
      contrast_[c] = counts ? sum : contrast_[c];
    }
  }

  const Job<float>& job_;
  const Constants<float> constants_;
  int first_column_;
  float deficit_[kColumns];
  float contrast_[kColumns];
  float squared_;
  float absolute_;
};

}  // namespace syncfree::ssim
