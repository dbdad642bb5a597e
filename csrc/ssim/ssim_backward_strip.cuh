// Strip path of the gradient: a block walks down a strip of columns, eight rows a step.
//
// Each step passes eight rows through five stages, with barriers between them: pixels become s and
// d; moments along rows; moments of whole windows, and their terms; sums of terms along rows; and
// sums along columns. Each of the two stages along columns lags five rows behind its input, so that
// nothing is computed twice but the halo at both ends of a block's rows and columns.
//
// Mirrored borders need no extra passes. The image continued by reflection is symmetric and so is
// the window, so the windows' terms are mirrored like the pixels. Sums over mirror images are then
// plain convolutions, if terms on the edge itself, which is its own mirror image, are doubled
// before and gradients there halved after.
#pragma once

#include "ssim/ssim_backward_strip_memory.cuh"

namespace syncfree::ssim {

template <class Pixels>
class BackwardStrip {
 public:
  __device__ BackwardStrip(const BackwardJob<float>& job, const GaussianTaps& taps,
                           StripMemory& memory)
      : job_(job),
        taps_(taps),
        memory_(memory),
        constants_(job.current_constants()),
        height_(static_cast<int>(job.axes[1].size)),
        width_(static_cast<int>(job.axes[2].size)),
        lane_(threadIdx.x % kThreadsAcross),
        row_(threadIdx.x / kThreadsAcross),
        column_(threadIdx.x % kStripWindows),
        group_(threadIdx.x / kStripWindows * kOutputsPerThread) {}

  // Gradients of the rows [top, top + rows) of the strip that begins at column `left`.
  __device__ void run(std::int64_t plane, int left, int top, int rows) {
    left_ = left;
    top_ = top;
    end_ = min(top + rows, height_);
    const ImageWeights<float> weights(job_, plane / job_.channels);
    __syncthreads();
    if (threadIdx.x == 0) memory_.offsets = plane_offsets(job_, plane);
    __syncthreads();
    place_columns();
    const int steps = (end_ - top + 4 * kReach + kStepRows - 1) / kStepRows;
    fetch(0);
    for (int step = 0; step < steps; ++step) {
      const int first = step * kStepRows;  // row of pixels, counted from the first one needed
      __syncthreads();
      put_pixels(first);
      if (step + 1 < steps) fetch(first + kStepRows);
      __syncthreads();
      filter_rows(first);
      __syncthreads();
      if (step == 0) continue;
      differentiate(first - 2 * kReach, weights);
      __syncthreads();
      sum_rows(first - 2 * kReach);
      __syncthreads();
      if (step > 1) finish(first - 4 * kReach, weights);
    }
  }

 private:
  static constexpr int kFetched = (kStripCovered + kThreadsAcross - 1) / kThreadsAcross;

  // Once a piece: multiplications by 64-bit strides are too slow to be done for each pixel.
  __device__ void place_columns() {
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int x = mirror_twice(left_ - 2 * kReach + lane_ + i * kThreadsAcross, width_);
      preds_column_[i] = x * static_cast<int>(job_.preds.stride[4]);
      target_column_[i] = x * static_cast<int>(job_.target.stride[4]);
    }
  }

  __device__ bool fetches(int i) const { return lane_ + i * kThreadsAcross < kStripCovered; }

  // Loads a row of pixels into registers, one step before it is needed.
  __device__ void fetch(int first) {
    const int y = mirror_twice(top_ - 2 * kReach + first + row_, height_);
    const std::int64_t preds = memory_.offsets.preds + y * job_.preds.stride[3];
    const std::int64_t target = memory_.offsets.target + y * job_.target.stride[3];
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      if (!fetches(i)) break;
      preds_[i] = Pixels::load(job_.preds, preds + preds_column_[i]);
      target_[i] = Pixels::load(job_.target, target + target_column_[i]);
    }
  }

  __device__ void put_pixels(int first) {
    if (job_.clamp.enabled) {
#pragma unroll
      for (int i = 0; i < kFetched; ++i) {
        preds_[i] = job_.clamp(preds_[i]);
        target_[i] = job_.clamp(target_[i]);
      }
    }
    const int row = pixel_row(first + row_);
    float* s = memory_.s[row] + kPixelShift - kReach + lane_;
    float* d = memory_.d[row] + kPixelShift - kReach + lane_;
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      if (!fetches(i)) break;
      s[i * kThreadsAcross] = (preds_[i] + target_[i]) * constants_.scale;
      d[i * kThreadsAcross] = (preds_[i] - target_[i]) * constants_.scale;
    }
  }

  __device__ void filter_rows(int first) {
    const int from = pixel_row(first + row_), at = lane_ * kOutputsPerThread;
    float (&to)[kTermPlanes][kStripWindows] = memory_.moments[ring_row(first + row_)];
    filter_row(taps_, memory_.s[from] + at, to[0] + at, to[1] + at);
    filter_row(taps_, memory_.d[from] + at, to[2] + at, to[3] + at);
  }

  __device__ void differentiate(int first, const ImageWeights<float>& weights) {
    ColumnMoments s, d;
    const int middle = ring_row(first + group_ + kPivotInput);
    s.pivot = memory_.moments[middle][0][column_];
    d.pivot = memory_.moments[middle][2][column_];
    int row = ring_row(first + group_);
#pragma unroll
    for (int k = 0; k < kSpread; ++k) {
      const auto& moments = memory_.moments[row + k % 2];
      s.add(k, taps_, moments[0][column_], moments[1][column_]);
      d.add(k, taps_, moments[2][column_], moments[3][column_]);
      if (k % 2 == 1) row = next_pair(row, kRing);
    }
    const bool plain = job_.grad_map.data == nullptr && is_inner(first);
    int pixels = pixel_row(first + group_ + kReach);
#pragma unroll
    for (int r = 0; r < kOutputsPerThread; ++r) {
      const int window = first + group_ + r;
      float weight = weights.value, contrast_weight = weights.contrast;
      if (!plain) weigh(window, weight, contrast_weight);
      const WindowGradient<float> g =
          window_gradient(s.mean_of(r), s.variance_of(r), d.mean_of(r), d.variance_of(r),
                          constants_, weight, contrast_weight);
      auto& terms = memory_.terms[group_ + r];
      const int middle_row = pixels + r % 2;
      put_terms(g.s, s.mean_of(r), memory_.s[middle_row], terms[kLevelS], terms[kSlopeS]);
      put_terms(g.d, d.mean_of(r), memory_.d[middle_row], terms[kLevelD], terms[kSlopeD]);
      if (r % 2 == 1) pixels = next_pair(pixels, kPixelRing);
    }
  }

  // Whether no window of this step reaches across an edge of the image.
  __device__ bool is_inner(int first) const {
    const int y = top_ - kReach + first, x = left_ - kReach;
    return y >= kReach && y + kStepRows <= height_ - kReach && x >= kReach &&
           x + kStripWindows <= width_ - kReach;
  }

  __device__ void weigh(int window, float& weight, float& contrast_weight) const {
    const int y = mirror_twice(top_ - kReach + window, height_);
    const int x = mirror_twice(left_ - kReach + column_, width_);
    if (job_.grad_map.data != nullptr)
      weight += load_pixel<float>(job_.grad_map, memory_.offsets.map + y * job_.grad_map.stride[3] +
                                                     x * job_.grad_map.stride[4]);
    if (y == 0 || y == height_ - 1) weight *= 2.0f;
    if (x == 0 || x == width_ - 1) weight *= 2.0f;
    const bool in_crop = y >= kReach && y < height_ - kReach && x >= kReach && x < width_ - kReach;
    if (!in_crop) contrast_weight = 0.0f;
    if (!in_crop && job_.axes[1].pad == 0) weight = 0.0f;
  }

  __device__ void put_terms(const PixelTerms<float>& terms, float mean, const float* pixels,
                            float* levels, float* slopes) const {
    levels[column_] = fmaf(terms.slope, pixels[column_ + kPixelShift] - mean, terms.level);
    slopes[column_] = terms.slope;
  }

  __device__ void sum_rows(int first) {
    const int at = lane_ * kOutputsPerThread;
    if (at >= kStripOutputs) return;
    const auto& terms = memory_.terms[row_];
    auto& sums = memory_.sums[ring_row(first + row_)];
    const int pixels = pixel_row(first + row_ + kReach);
    sum_row(taps_, terms[kLevelS] + at, terms[kSlopeS] + at, memory_.s[pixels] + at + kPixelShift,
            sums[kLevelS] + at, sums[kSlopeS] + at);
    sum_row(taps_, terms[kLevelD] + at, terms[kSlopeD] + at, memory_.d[pixels] + at + kPixelShift,
            sums[kLevelD] + at, sums[kSlopeD] + at);
  }

  __device__ void finish(int first, const ImageWeights<float>& weights) {
    const int x = left_ + column_;
    if (column_ >= kStripOutputs || x >= width_) return;
    ColumnSums s, d;
    constexpr int kMiddle = kPixelShift + kReach;  // of a strip's first output
    const int middle = pixel_row(first + group_ + kPivotInput + kReach);
    s.pivot = memory_.s[middle][column_ + kMiddle];
    d.pivot = memory_.d[middle][column_ + kMiddle];
    int row = ring_row(first + group_), pixels = pixel_row(first + group_ + kReach);
#pragma unroll
    for (int k = 0; k < kSpread; ++k) {
      const auto& sums = memory_.sums[row + k % 2];
      s.add(k, taps_, sums[kLevelS][column_], sums[kSlopeS][column_],
            memory_.s[pixels + k % 2][column_ + kMiddle]);
      d.add(k, taps_, sums[kLevelD][column_], sums[kSlopeD][column_],
            memory_.d[pixels + k % 2][column_ + kMiddle]);
      if (k % 2 == 0) continue;
      row = next_pair(row, kRing);
      pixels = next_pair(pixels, kPixelRing);
    }
    const float edge = x == 0 || x == width_ - 1 ? 0.5f * constants_.scale : constants_.scale;
    const float unscaled = inverse_of_power(constants_.scale);
    float by_preds[kOutputsPerThread], by_target[kOutputsPerThread];
#pragma unroll
    for (int r = 0; r < kOutputsPerThread; ++r) {
      const int y = top_ + first + group_ + r;
      const float scale = y == 0 || y == height_ - 1 ? 0.5f * edge : edge;
      const float error = weights.by_difference(d.pixel[r] * unscaled);
      const float by_s = s.gradient(r), by_d = d.gradient(r);
      by_preds[r] = fmaf(by_s + by_d, scale, error);
      by_target[r] = fmaf(by_s - by_d, scale, -error);
    }
    const PlaneOffsets& offsets = memory_.offsets;
    const int y = top_ + first + group_;
    write(job_.grad_preds, offsets.grad_preds, offsets.pooled_preds, job_.preds, offsets.preds, y,
          x, by_preds);
    write(job_.grad_target, offsets.grad_target, offsets.pooled_target, job_.target, offsets.target,
          y, x, by_target);
  }

  // Writes the gradients of four rows, as far as they are rows of this piece.
  __device__ void write(const GradientImage& gradient, std::int64_t offset,
                        std::int64_t pooled_offset, const Image& image, std::int64_t image_offset,
                        int y, int x, float (&values)[kOutputsPerThread]) const {
    if (gradient.data == nullptr) return;
    if (job_.clamp.enabled) {
      const std::int64_t at = image_offset + y * image.stride[3] + x * image.stride[4];
#pragma unroll
      for (int r = 0; r < kOutputsPerThread; ++r)
        if (y + r >= top_ && y + r < end_ &&
            !job_.clamp.passes(Pixels::load(image, at + r * image.stride[3])))
          values[r] = 0.0f;
    }
    if (gradient.pooled.data != nullptr && x / 2 < width_ / 2)
      add_pooled(gradient.pooled, pooled_offset, {top_, end_}, y, x, values);
    const std::int64_t at = offset + y * gradient.stride[3] + x * gradient.stride[4];
#pragma unroll
    for (int r = 0; r < kOutputsPerThread; ++r)
      if (y + r >= top_ && y + r < end_)
        Pixels::store(gradient, at + r * gradient.stride[3], values[r]);
  }

  const BackwardJob<float>& job_;
  const GaussianTaps& taps_;
  StripMemory& memory_;
  const Constants<float> constants_;
  const int height_;
  const int width_;
  // A thread's position in stages in which it has four columns of a row,
  const int lane_;
  const int row_;
  // and in stages in which it has four rows of a column.
  const int column_;
  const int group_;
  int left_;
  int top_;
  int end_;
  int preds_column_[kFetched];
  int target_column_[kFetched];
  float preds_[kFetched];
  float target_[kFetched];
};

template <class Pixels>
__global__ void __launch_bounds__(kBackwardThreads, kBackwardBlocksPerMultiprocessor)
    backward_strip_kernel(const __grid_constant__ BackwardJob<float> job,
                          const __grid_constant__ GaussianTaps taps, int strips, int pieces,
                          int rows) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  BackwardStrip<Pixels> strip(job, taps, *reinterpret_cast<StripMemory*>(dynamic));
  const std::int64_t total = job.planes * strips * pieces;
  for (std::int64_t unit = blockIdx.x; unit < total; unit += gridDim.x) {
    const std::int64_t column = unit / pieces;
    const std::int64_t plane = column / strips;
    strip.run(plane, static_cast<int>(column - plane * strips) * kStripOutputs,
              static_cast<int>(unit - column * pieces) * rows, rows);
  }
}

}  // namespace syncfree::ssim
