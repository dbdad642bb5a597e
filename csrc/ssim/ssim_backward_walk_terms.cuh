// From the sums over a lane's windows to what they pass back.
#pragma once

#include "ssim/ssim_backward_walk_ring.cuh"
#include "ssim/ssim_strip_outputs.cuh"

namespace syncfree::ssim {

class WindowTerms {
 public:
  __device__ WindowTerms(const BackwardJob<float>& job, const Constants<float>& constants)
      : job_(job), constants_(constants) {}

  // For a warp whose windows begin at column `begin`, and a lane whose first is `first_column`.
  __device__ void start(std::int64_t plane, int begin, int first_column) {
    const ImageWeights<float> weights(job_, plane / job_.channels);
    // The derivatives of squares and of a quotient hold a factor of 4.
    weight_ = 4.0f * weights.value;
    contrast_weight_ = 4.0f * weights.contrast;
    first_column_ = first_column;
    has_edge_ = begin < kReach || begin + kStripColumns > width() - kReach;
  }

  // Levels are those at the pivot. `zero_s` and `zero_d` are window sums of what the moments are
  // about; without the latter it is zero.
  template <class... ZeroD>
  __device__ void put(const StripMoments& sums, int y, RowOfTerms& row, int at, float zero_s,
                      ZeroD... zero_d) const {
    float weight[kColumns], contrast_weight[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      weight[c] = weight_;
      contrast_weight[c] = contrast_weight_;
    }
    if (has_edge_ || y < kReach || y >= height() - kReach) weigh(y, weight, contrast_weight);
    float level_s[kColumns], slope_s[kColumns], level_d[kColumns], slope_d[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float mean_s = sums.s[c] + zero_s, mean_d = (sums.d[c] + ... + zero_d);
      const float t = fmaf(mean_s, mean_s, constants_.twice_c1), w = __fmul_rn(mean_d, mean_d);
      const float u =
          at_least(fmaf(-sums.s[c], sums.s[c], fmaf(sums.ss[c], kTapSum, constants_.twice_c2)),
                   constants_.twice_c2);
      const float v = at_least(fmaf(sums.dd[c], kTapSum, -__fmul_rn(sums.d[c], sums.d[c])), 0.0f);
      // As window_gradient(): reciprocals first, for squares may leave the range of float.
      const float by_tw = reciprocal(t + w), by_uv = reciprocal(u + v);
      const float w_share = w * by_tw, v_share = v * by_uv;
      const float luminance = fmaf(-2.0f, w_share, 1.0f), contrast = fmaf(-2.0f, v_share, 1.0f);
      const float level = weight[c] * contrast * by_tw;
      const float slope = fmaf(weight[c], luminance, contrast_weight[c]) * by_uv;
      slope_s[c] = slope * v_share;
      slope_d[c] = -slope * (u * by_uv);
      level_s[c] = fmaf(-slope_s[c], sums.s[c], level * mean_s * w_share);
      level_d[c] = fmaf(-slope_d[c], sums.d[c], -level * mean_d * (t * by_tw));
    }
    store_shared(row.plane[kLevelS] + at, level_s);
    store_shared(row.plane[kSlopeS] + at, slope_s);
    store_shared(row.plane[kLevelD] + at, level_d);
    store_shared(row.plane[kSlopeD] + at, slope_d);
  }

 private:
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }
  // What stands on the edge is its own mirror image: it counts twice here, and half in the end.
  // Contrast has no border, nor has SSIM where windows stay inside the image.
  __device__ void weigh(int row, float (&weight)[kColumns],
                        float (&contrast_weight)[kColumns]) const {
    const int y = max(mirror(row, height()), 0);
    const bool on_edge = y == 0 || y == height() - 1;
    const bool row_in_crop = y >= kReach && y < height() - kReach;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int x = min(first_column_ + c, width() - 1);
      if (on_edge) weight[c] *= 2.0f;
      if (x == 0 || x == width() - 1) weight[c] *= 2.0f;
      const bool in_crop = row_in_crop && x >= kReach && x < width() - kReach;
      if (!in_crop) contrast_weight[c] = 0.0f;
      if (!in_crop && job_.axes[1].pad == 0) weight[c] = 0.0f;
    }
  }

  const BackwardJob<float>& job_;
  const Constants<float> constants_;
  float weight_;
  float contrast_weight_;
  int first_column_;
  bool has_edge_;
};

}  // namespace syncfree::ssim
