// From the window sums of a lane's columns to the windows' terms.
#pragma once

#include "ssim/ssim_backward_walk_ring.cuh"
#include "ssim/ssim_terms.cuh"

namespace syncfree::ssim {

struct WindowMoments {
  float s[kWalkColumns];
  float ss[kWalkColumns];
  float d[kWalkColumns];
  float dd[kWalkColumns];
};

// Inputs of the formula, uniform in a warp. In shared memory, since registers are scarce.
struct alignas(16) FormulaInputs {
  float twice_c1;
  float twice_c2;
  float zero_s;  // window sum of the level that was subtracted from s
};

// The weights of a lane's windows in the gradients of value and contrast.
struct alignas(16) LaneWeights {
  float value[kWalkColumns];
  float contrast[kWalkColumns];
};

struct TermsOfLane {
  WalkTerm plane[2][kWalkColumns];  // of s and of d
  float deficit;                    // sum over the columns of (1 - SSIM) / 2
};

class WindowTerms {
 public:
  __device__ WindowTerms(const BackwardJob<float>& job, const Constants<float>& constants,
                         FormulaInputs& inputs, LaneWeights& weights)
      : job_(job), inputs_(inputs), weights_(weights) {
    inputs_.twice_c1 = constants.twice_c1;
    inputs_.twice_c2 = constants.twice_c2;
  }

  // Starts a piece, for a lane whose windows begin at `column`.
  __device__ void start(std::int64_t plane, int column, float zero_s) {
    const ImageWeights<float> weights(job_, plane / job_.channels);
    inputs_.zero_s = zero_s;
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      const int x = min(column + c, width() - 1);
      // The factor of 4 of window_gradient(): the derivatives of squares and of a quotient hold it.
      const EdgeFactors factors = at(x, width());
      weights_.value[c] = 4.0f * weights.value * factors.value;
      weights_.contrast[c] = 4.0f * weights.contrast * factors.contrast;
    }
  }

  // For rows away from the edges, with a pivot of zero. Levels are relative to the pivot.
  __device__ TermsOfLane find(const WindowMoments& sums) const {
    return find(sums, {1.0f, 1.0f}, inputs_.zero_s, [](float mean) { return mean; });
  }

  // The same for any row `y`. `pivot_s` and `pivot_d` are window sums of the pivots.
  __device__ TermsOfLane find(const WindowMoments& sums, int y, float pivot_s,
                              float pivot_d) const {
    const EdgeFactors factors = this->at(max(mirror(y, height()), 0), height());
    return find(sums, factors, inputs_.zero_s + pivot_s,
                [pivot_d](float mean) { return mean + pivot_d; });
  }

 private:
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  struct EdgeFactors {
    float value;
    float contrast;
  };

  // A window on the edge is its own mirror image: it counts twice here, and the gradient there is
  // halved in the end. The border does not count for the contrast, nor for SSIM where windows stay
  // inside the image.
  __device__ EdgeFactors at(int i, int size) const {
    const bool in_crop = i >= kReach && i < size - kReach;
    const float value = i == 0 || i == size - 1 ? 2.0f : 1.0f;
    return {in_crop || job_.axes[1].pad != 0 ? value : 0.0f, in_crop ? 1.0f : 0.0f};
  }

  template <class MeanOfD>
  __device__ TermsOfLane find(const WindowMoments& sums, const EdgeFactors& factors, float zero_s,
                              const MeanOfD& mean_of_d) const {
    const FormulaInputs k = inputs_;
    const LaneWeights weights = weights_;
    TermsOfLane terms;
    auto& [by_s, by_d] = terms.plane;
    terms.deficit = 0.0f;
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) {
      const float mean_s = sums.s[c] + zero_s, mean_d = mean_of_d(sums.d[c]);
      const float weight = weights.value[c] * factors.value;
      const float contrast_weight = weights.contrast[c] * factors.contrast;
      const float t = fmaf(mean_s, mean_s, k.twice_c1), w = __fmul_rn(mean_d, mean_d);
      const float u =
          at_least(fmaf(-sums.s[c], sums.s[c], fmaf(sums.ss[c], kTapSum, k.twice_c2)), k.twice_c2);
      const float v = at_least(fmaf(sums.dd[c], kTapSum, -__fmul_rn(sums.d[c], sums.d[c])), 0.0f);
      // As window_gradient(). Reciprocals first, since squares may leave the range of float.
      const float by_tw = inverse_of(t + w), by_uv = inverse_of(u + v);
      const float w_share = w * by_tw, v_share = v * by_uv;
      const float luminance = fmaf(-2.0f, w_share, 1.0f), contrast = fmaf(-2.0f, v_share, 1.0f);
      const float level = weight * contrast * by_tw;
      const float slope = fmaf(weight, luminance, contrast_weight) * by_uv;
      terms.deficit += fmaf(v_share, luminance, w_share);
      by_s[c].slope = slope * v_share;
      by_d[c].slope = -slope * (u * by_uv);
      by_s[c].level = fmaf(-by_s[c].slope, sums.s[c], level * mean_s * w_share);
      by_d[c].level = fmaf(-by_d[c].slope, sums.d[c], -level * mean_d * (t * by_tw));
    }
    return terms;
  }

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  const BackwardJob<float>& job_;
  FormulaInputs& inputs_;
  LaneWeights& weights_;
};

}  // namespace syncfree::ssim
