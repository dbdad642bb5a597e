// From the window sums of a lane's four columns to the windows' terms.
#pragma once

#include "ssim/ssim_backward_ring_memory.cuh"
#include "ssim/ssim_strip_outputs.cuh"

namespace syncfree::ssim {

struct LaneTerms {
  float of[kTermPlanes][kColumns];
  float deficit;  // sum over the columns of (1 - SSIM) / 2
};

// `zero_s` and `mean_of_d` add what was subtracted from s and d. Levels are relative to the pivot.
template <class MeanOfD>
__device__ LaneTerms terms_of(const StripMoments& sums, float twice_c1, float twice_c2,
                              float zero_s, const MeanOfD& mean_of_d) {
  constexpr auto kTapSum = static_cast<float>(kTapSumOf<RingWindow>);
  LaneTerms terms;
  terms.deficit = 0.0f;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const float mean_s = sums.s[c] + zero_s, mean_d = mean_of_d(sums.d[c]);
    const float t = fmaf(mean_s, mean_s, twice_c1), w = __fmul_rn(mean_d, mean_d);
    const float u =
        at_least(fmaf(sums.ss[c], kTapSum, fmaf(-sums.s[c], sums.s[c], twice_c2)), twice_c2);
    const float v = at_least(fmaf(sums.dd[c], kTapSum, -__fmul_rn(sums.d[c], sums.d[c])), 0.0f);
    // As window_gradient(), without its factor of 4. Reciprocals first, since squares may leave the
    // range of float.
    const float by_tw = inverse_of(t + w), by_uv = inverse_of(u + v);
    const float w_share = w * by_tw, v_share = v * by_uv;
    const float luminance = fmaf(-2.0f, w_share, 1.0f), contrast = fmaf(-2.0f, v_share, 1.0f);
    const float level = contrast * by_tw;
    const float slope = luminance * by_uv;
    terms.deficit += fmaf(v_share, luminance, w_share);
    const float slope_s = slope * v_share, slope_d = -slope * (u * by_uv);
    terms.of[kSlopeS][c] = slope_s;
    terms.of[kSlopeD][c] = slope_d;
    terms.of[kLevelS][c] = fmaf(-slope_s, sums.s[c], level * mean_s * w_share);
    terms.of[kLevelD][c] = fmaf(-slope_d, sums.d[c], -level * mean_d * (t * by_tw));
  }
  return terms;
}

}  // namespace syncfree::ssim
