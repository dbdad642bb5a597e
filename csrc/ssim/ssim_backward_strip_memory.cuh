// The shared memory of the strip path, and the sums that its stages compute from it.
#pragma once

#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_backward_pixels.cuh"

namespace syncfree::ssim {

inline constexpr int kGaussianTaps = 2 * kReach + 1;

inline constexpr int kStepRows = 8;
inline constexpr int kStripOutputs = 52;                          // columns of gradients
inline constexpr int kStripWindows = 64;                          // of windows, some of them spare
inline constexpr int kStripCovered = kStripOutputs + 4 * kReach;  // of pixels
inline constexpr int kOutputsPerThread = 4;                       // along a row or down a column
inline constexpr int kThreadsAcross = kStripWindows / kOutputsPerThread;
inline constexpr int kBackwardThreads = kThreadsAcross * kStepRows;
inline constexpr int kBackwardBlocksPerMultiprocessor = 4;
inline constexpr int kSpread = kGaussianTaps + kOutputsPerThread - 1;  // inputs of these outputs
inline constexpr int kPivotInput = kSpread / 2;  // an input that all of these outputs include

// The middle pixel of window column c lies at c + kPixelShift, so that aligned vectors can be read
// both from there and from just before the window's first pixel. Spare windows read up to the end
// of a row, written or not.
inline constexpr int kPixelShift = 8;
inline constexpr int kPixelPitch = 80;

// Rows that are in use at a time, in ring buffers.
inline constexpr int kPixelRing = 3 * kStepRows;
inline constexpr int kRing = kStepRows + 2 * kReach;

struct GaussianTaps {
  float tap[kGaussianTaps];
};

// Offsets of the current plane in each tensor, once a piece: 64-bit divisions are too slow to be
// done for each pixel.
struct PlaneOffsets {
  std::int64_t preds;
  std::int64_t target;
  std::int64_t map;
  std::int64_t grad_preds;
  std::int64_t grad_target;
  std::int64_t pooled_preds;
  std::int64_t pooled_target;
};

__device__ inline PlaneOffsets plane_offsets(const BackwardJob<float>& job, std::int64_t plane) {
  return {plane_offset(job.preds, job.channels, plane),
          plane_offset(job.target, job.channels, plane),
          plane_offset(job.grad_map, job.channels, plane),
          plane_offset(job.grad_preds, job.channels, plane),
          plane_offset(job.grad_target, job.channels, plane),
          plane_offset(job.grad_preds.pooled, job.channels, plane),
          plane_offset(job.grad_target.pooled, job.channels, plane)};
}

struct StripMemory {
  alignas(16) float s[kPixelRing][kPixelPitch];
  alignas(16) float d[kPixelRing][kPixelPitch];
  alignas(16) float moments[kRing][kTermPlanes][kStripWindows];  // mean and variance of s, of d
  // Levels are relative to the pixel in the middle of the window: they hold small differences of
  // neighboring pixels, whose digits would be lost about any common pivot.
  alignas(16) float terms[kStepRows][kTermPlanes][kStripWindows];
  alignas(16) float sums[kRing][kTermPlanes][kStripOutputs];
  PlaneOffsets offsets;
};
static_assert(sizeof(StripMemory) <= 64 << 10, "what a block may have on every GPU");

// Where rows lie in their ring buffers, counted from the first row that a piece needs. The added
// constants make the index positive, and even for the row at which a thread begins, so that a pair
// of rows never crosses the end of the buffer.
__device__ inline int ring_row(int row) {
  return (row + 2 * kRing) % kRing;
}
__device__ inline int pixel_row(int row) {
  return (row + kPixelRing + 1) % kPixelRing;
}
__device__ inline int next_pair(int row, int ring) {
  return row + 2 == ring ? 0 : row + 2;
}

// The pixel at position i of an axis that is mirrored at both ends repeatedly, for i near the
// image.
__device__ inline int mirror_twice(int i, int size) {
  return min(max(mirror(mirror(i, size), size), 0), size - 1);
}

// Loads kSpread values from an aligned address, and two more that complete the last vector.
__device__ inline void load_spread(const float* from, float (&to)[kSpread + 2]) {
#pragma unroll
  for (int i = 0; i < kSpread + 2; i += 4) load_vector(from + i, to + i);
}

// Adds to a thread's rows their share of the gradient of the half-size image, which is float32 in
// this path. Pieces and steps begin at even rows; a last odd row has no share.
__device__ inline void add_pooled(const Image& pooled, std::int64_t offset, Span piece, int y,
                                  int x, float (&values)[kOutputsPerThread]) {
  const float* column = static_cast<const float*>(pooled.data) + offset + x / 2 * pooled.stride[4];
#pragma unroll
  for (int r = 0; r < kOutputsPerThread; r += 2) {
    if (y + r < piece.begin || y + r + 1 >= piece.end) continue;
    const float share = 0.25f * __ldg(column + (y + r) / 2 * pooled.stride[3]);
    values[r] += share;
    values[r + 1] += share;
  }
}

// Mean and variance along a row for four adjacent windows, about a pixel that all four cover.
__device__ inline void filter_row(const GaussianTaps& taps, const float* pixels, float* means,
                                  float* variances) {
  constexpr int kLead = kPixelShift - kReach;
  float x[kLead + kSpread + 3];
#pragma unroll
  for (int i = 0; i < kLead + kSpread + 3; i += 4) load_vector(pixels + i, x + i);
  const float pivot = x[kLead + kPivotInput];
  float mean[kOutputsPerThread] = {}, square[kOutputsPerThread] = {};
#pragma unroll
  for (int k = 0; k < kSpread; ++k) {
    const float offset = x[kLead + k] - pivot, squared = offset * offset;
#pragma unroll
    for (int c = 0; c < kOutputsPerThread; ++c) {
      if (k < c || k - c >= kGaussianTaps) continue;
      mean[c] = fmaf(taps.tap[k - c], offset, mean[c]);
      square[c] = fmaf(taps.tap[k - c], squared, square[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kOutputsPerThread; ++c) {
    square[c] = fmaf(-mean[c], mean[c], square[c]);
    mean[c] += pivot;
  }
  store_vector(means, mean);
  store_vector(variances, square);
}

// Moments of four whole windows, one below the other, from the moments of their rows.
struct ColumnMoments {
  float mean[kOutputsPerThread] = {};
  float square[kOutputsPerThread] = {};
  float pivot;

  __device__ void add(int k, const GaussianTaps& taps, float row_mean, float row_variance) {
    const float offset = row_mean - pivot, squared = fmaf(offset, offset, row_variance);
#pragma unroll
    for (int r = 0; r < kOutputsPerThread; ++r) {
      if (k < r || k - r >= kGaussianTaps) continue;
      mean[r] = fmaf(taps.tap[k - r], offset, mean[r]);
      square[r] = fmaf(taps.tap[k - r], squared, square[r]);
    }
  }

  __device__ float mean_of(int r) const { return pivot + mean[r]; }
  __device__ float variance_of(int r) const { return fmaf(-mean[r], mean[r], square[r]); }
};

// Sums terms along a row for four adjacent outputs. Each sum of levels is relative to the pixel in
// its own column.
__device__ inline void sum_row(const GaussianTaps& taps, const float* levels, const float* slopes,
                               const float* pixels, float* level_sums, float* slope_sums) {
  float level[kSpread + 2], slope[kSpread + 2], pixel[kSpread + 2];
  load_spread(levels, level);
  load_spread(slopes, slope);
  load_spread(pixels, pixel);
  const float pivot = pixel[kPivotInput];
  float level_sum[kOutputsPerThread] = {}, slope_sum[kOutputsPerThread] = {};
#pragma unroll
  for (int k = 0; k < kSpread; ++k) {
    const float at_pivot = fmaf(slope[k], pivot - pixel[k], level[k]);
#pragma unroll
    for (int c = 0; c < kOutputsPerThread; ++c) {
      if (k < c || k - c >= kGaussianTaps) continue;
      level_sum[c] = fmaf(taps.tap[k - c], at_pivot, level_sum[c]);
      slope_sum[c] = fmaf(taps.tap[k - c], slope[k], slope_sum[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kOutputsPerThread; ++c)
    level_sum[c] = fmaf(slope_sum[c], pixel[c + kReach] - pivot, level_sum[c]);
  store_vector(level_sums, level_sum);
  store_vector(slope_sums, slope_sum);
}

// Gradients of four pixels, one below the other, from the sums along rows.
struct ColumnSums {
  float level[kOutputsPerThread] = {};
  float slope[kOutputsPerThread] = {};
  float pixel[kOutputsPerThread];
  float pivot;

  __device__ void add(int k, const GaussianTaps& taps, float row_level, float row_slope,
                      float row_pixel) {
    const float at_pivot = fmaf(row_slope, pivot - row_pixel, row_level);
    if (k >= kReach && k - kReach < kOutputsPerThread) pixel[k - kReach] = row_pixel;
#pragma unroll
    for (int r = 0; r < kOutputsPerThread; ++r) {
      if (k < r || k - r >= kGaussianTaps) continue;
      level[r] = fmaf(taps.tap[k - r], at_pivot, level[r]);
      slope[r] = fmaf(taps.tap[k - r], row_slope, slope[r]);
    }
  }

  __device__ float gradient(int r) const { return fmaf(slope[r], pixel[r] - pivot, level[r]); }
};

}  // namespace syncfree::ssim
