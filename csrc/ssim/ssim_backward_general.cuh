// General path of the gradient: the passes over one box of pixels, in double. Each axis has a pass
// from pixels to moments and one from the windows' terms back to pixels.
#pragma once

#include "core/divide.h"
#include "ssim/ssim_backward_job.cuh"

namespace syncfree::ssim {

inline constexpr int kPassThreads = 256;
inline constexpr int kMoments = 4;  // s, d, s^2, d^2; on the way back levels, then slopes of s, d

struct Extent {
  std::int64_t size[3];

  SYNCFREE_HD std::int64_t count() const { return size[0] * size[1] * size[2]; }
};

// Pixels of some planes, the windows that cover them, and the places that those windows cover.
struct Box {
  std::int64_t first_plane;
  std::int64_t planes;
  Span pixels[3];
  Span windows[3];
  Span covered[3];
};

struct Taps {
  const double* of[3];
};

// Removes the last coordinate from a linear index and returns it.
__device__ inline std::int64_t take_last(std::int64_t& index, std::int64_t size) {
  const std::int64_t rest = divide(index, size);
  const std::int64_t coordinate = index - rest * size;
  index = rest;
  return coordinate;
}

__device__ inline std::int64_t first_index() {
  return blockIdx.x * static_cast<std::int64_t>(kPassThreads) + threadIdx.x;
}

__device__ inline std::int64_t index_step() {
  return gridDim.x * static_cast<std::int64_t>(kPassThreads);
}

static __global__ void taps_kernel(const __grid_constant__ Window window, double* taps) {
  for (int axis = 0; axis < 3; ++axis) {
    for (int k = threadIdx.x; k < window.axes[axis].taps; k += blockDim.x)
      taps[k] = raw_tap(window.axes[axis], k) * window.tap_scale[axis];
    taps += window.axes[axis].taps;
  }
}

struct Pixel {
  double s;
  double d;
};

// The pixels of one plane relative to the one in its middle, so that moments keep their digits.
class PlanePixels {
 public:
  __device__ PlanePixels(const BackwardJob<double>& job, std::int64_t plane)
      : job_(job),
        scale_(job.current_constants().scale),
        preds_(plane_offset(job.preds, job.channels, plane)),
        target_(plane_offset(job.target, job.channels, plane)) {
    const Pixel middle = read(job.axes[0].size / 2, job.axes[1].size / 2, job.axes[2].size / 2);
    pivot_ = {finite_or_zero(middle.s), finite_or_zero(middle.d)};
  }

  __device__ double preds(std::int64_t z, std::int64_t y, std::int64_t x) const {
    return load(job_.preds, preds_, z, y, x);
  }
  __device__ double target(std::int64_t z, std::int64_t y, std::int64_t x) const {
    return load(job_.target, target_, z, y, x);
  }
  __device__ Pixel at(std::int64_t z, std::int64_t y, std::int64_t x) const {
    const Pixel pixel = read(z, y, x);
    return {pixel.s - pivot_.s, pixel.d - pivot_.d};
  }
  __device__ Pixel pivot() const { return pivot_; }

 private:
  __device__ static double load(const Image& image, std::int64_t plane, std::int64_t z,
                                std::int64_t y, std::int64_t x) {
    return load_pixel<double>(
        image, plane + z * image.stride[2] + y * image.stride[3] + x * image.stride[4]);
  }
  __device__ Pixel read(std::int64_t z, std::int64_t y, std::int64_t x) const {
    const double a = job_.clamp(preds(z, y, x)), b = job_.clamp(target(z, y, x));
    return {(a + b) * scale_, (a - b) * scale_};
  }

  const BackwardJob<double>& job_;
  const double scale_;
  const std::int64_t preds_;
  const std::int64_t target_;
  Pixel pivot_{0.0, 0.0};
};

// out: (moment, plane, covered depth, covered height, windows across).
static __global__ void __launch_bounds__(kPassThreads)
    filter_width_kernel(const __grid_constant__ BackwardJob<double> job,
                        const __grid_constant__ Box box, const __grid_constant__ Taps taps,
                        double* out) {
  const Extent extent{{box.covered[0].size(), box.covered[1].size(), box.windows[2].size()}};
  const std::int64_t count = box.planes * extent.count();
  const BackwardAxis& width = job.axes[2];
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t rest = i;
    const std::int64_t x = take_last(rest, extent.size[2]);
    const std::int64_t y = take_last(rest, extent.size[1]) + box.covered[1].begin;
    const std::int64_t z = take_last(rest, extent.size[0]) + box.covered[0].begin;
    const PlanePixels pixels(job, box.first_plane + rest);
    const std::int64_t source_y = mirror(y, job.axes[1].size);
    const std::int64_t source_z = mirror(z, job.axes[0].size);
    double sums[kMoments] = {};
    for (int k = 0; k < width.taps; ++k) {
      const Pixel p =
          pixels.at(source_z, source_y, mirror(box.covered[2].begin + x + k, width.size));
      const double weight = taps.of[2][k];
      sums[0] += weight * p.s;
      sums[1] += weight * p.d;
      sums[2] += weight * p.s * p.s;
      sums[3] += weight * p.d * p.d;
    }
#pragma unroll
    for (int moment = 0; moment < kMoments; ++moment) out[moment * count + i] = sums[moment];
  }
}

// (outer, covered, inner) to (outer, windows, inner).
static __global__ void __launch_bounds__(kPassThreads)
    filter_axis_kernel(const double* in, const double* weights, int taps, std::int64_t outer,
                       std::int64_t covered, std::int64_t windows, std::int64_t inner,
                       double* out) {
  const std::int64_t count = outer * windows * inner;
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t rest = i;
    const std::int64_t column = take_last(rest, inner);
    const std::int64_t window = take_last(rest, windows);
    const double* from = in + (rest * covered + window) * inner + column;
    double sum = 0.0;
    for (int k = 0; k < taps; ++k) sum += weights[k] * from[k * inner];
    out[i] = sum;
  }
}

// Replaces each window's moments by its terms. Levels are relative to the pivots too: they become
// level - slope * mean.
static __global__ void __launch_bounds__(kPassThreads)
    differentiate_kernel(const __grid_constant__ BackwardJob<double> job,
                         const __grid_constant__ Box box, double* values) {
  const std::int64_t plane_count =
      box.windows[0].size() * box.windows[1].size() * box.windows[2].size();
  const std::int64_t count = box.planes * plane_count;
  const Constants<double> constants = job.current_constants();
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t rest = i, at[3];
    bool inner = true;
    for (int axis = 2; axis >= 0; --axis) {
      at[axis] = take_last(rest, box.windows[axis].size()) + box.windows[axis].begin;
      const BackwardAxis& a = job.axes[axis];
      inner = inner && at[axis] >= a.pad && at[axis] < a.windows - a.pad;
    }
    const std::int64_t plane = box.first_plane + rest;
    const ImageWeights<double> weights(job, plane / job.channels);
    double weight = weights.value;
    if (job.grad_map.data != nullptr) {
      const std::int64_t* stride = job.grad_map.stride;
      weight += load_pixel<double>(job.grad_map, plane_offset(job.grad_map, job.channels, plane) +
                                                     at[0] * stride[2] + at[1] * stride[3] +
                                                     at[2] * stride[4]);
    }
    const Pixel pivot = PlanePixels(job, plane).pivot();
    const double s = values[i], d = values[count + i];
    const WindowGradient<double> g = window_gradient(
        s + pivot.s, values[2 * count + i] - s * s, d + pivot.d, values[3 * count + i] - d * d,
        constants, weight, inner ? weights.contrast : 0.0);
    values[i] = g.s.level - g.s.slope * s;
    values[count + i] = g.d.level - g.d.slope * d;
    values[2 * count + i] = g.s.slope;
    values[3 * count + i] = g.d.slope;
  }
}

// (outer, windows, inner) to (outer, pixels, inner).
static __global__ void __launch_bounds__(kPassThreads)
    back_axis_kernel(const double* in, const double* weights,
                     const __grid_constant__ BackwardAxis axis, Span windows, Span pixels,
                     std::int64_t outer, std::int64_t inner, double* out) {
  const std::int64_t count = outer * pixels.size() * inner;
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t rest = i;
    const std::int64_t column = take_last(rest, inner);
    const std::int64_t pixel = take_last(rest, pixels.size()) + pixels.begin;
    const double* from = in + rest * windows.size() * inner + column;
    double sum = 0.0;
    axis.each_place(pixel, [&](std::int64_t place) {
      const Span over = axis.windows_at(place);
      for (std::int64_t window = over.begin; window < over.end; ++window)
        sum += weights[place + axis.pad - window] * from[(window - windows.begin) * inner];
    });
    out[i] = sum;
  }
}

// A pixel's share of the gradient of the half-size image.
__device__ inline double pooled_share(const BackwardJob<double>& job, const Image& pooled,
                                      std::int64_t plane, std::int64_t z, std::int64_t y,
                                      std::int64_t x) {
  const bool volume = job.axes[0].size > 1;
  const bool left_out = (volume && z / 2 >= job.axes[0].size / 2) ||
                        y / 2 >= job.axes[1].size / 2 || x / 2 >= job.axes[2].size / 2;
  if (pooled.data == nullptr || left_out) return 0.0;
  const std::int64_t at = plane_offset(pooled, job.channels, plane) +
                          (volume ? z / 2 : z) * pooled.stride[2] + y / 2 * pooled.stride[3] +
                          x / 2 * pooled.stride[4];
  return (volume ? 0.125 : 0.25) * load_pixel<double>(pooled, at);
}

// in: (moment, plane, depth, height, windows across).
static __global__ void __launch_bounds__(kPassThreads)
    finish_kernel(const __grid_constant__ BackwardJob<double> job, const __grid_constant__ Box box,
                  const __grid_constant__ Taps taps, const double* in) {
  const Extent extent{{box.pixels[0].size(), box.pixels[1].size(), box.pixels[2].size()}};
  const std::int64_t row = box.windows[2].size();
  const std::int64_t rows = box.planes * extent.size[0] * extent.size[1];
  const BackwardAxis& width = job.axes[2];
  const double scale = job.current_constants().scale;
  for (std::int64_t i = first_index(); i < rows * extent.size[2]; i += index_step()) {
    std::int64_t rest = i;
    const std::int64_t x = take_last(rest, extent.size[2]) + box.pixels[2].begin;
    const double* from = in + rest * row - box.windows[2].begin;
    const std::int64_t y = take_last(rest, extent.size[1]) + box.pixels[1].begin;
    const std::int64_t z = take_last(rest, extent.size[0]) + box.pixels[0].begin;
    const std::int64_t plane = box.first_plane + rest;
    double sums[kMoments] = {};
    width.each_place(x, [&](std::int64_t place) {
      const Span over = width.windows_at(place);
      for (std::int64_t window = over.begin; window < over.end; ++window)
#pragma unroll
        for (int moment = 0; moment < kMoments; ++moment)
          sums[moment] +=
              taps.of[2][place + width.pad - window] * from[moment * rows * row + window];
    });
    const PlanePixels pixels(job, plane);
    const Pixel p = pixels.at(z, y, x);
    const double by_s = sums[0] + sums[2] * p.s, by_d = sums[1] + sums[3] * p.d;
    const double preds = pixels.preds(z, y, x), target = pixels.target(z, y, x);
    const ImageWeights<double> weights(job, plane / job.channels);
    const double error = weights.by_difference(job.clamp(preds) - job.clamp(target));
    const auto write = [&](const GradientImage& gradient, double pixel, double value) {
      if (gradient.data == nullptr) return;
      // The images were pooled before any clamping, so the clamp does not stop the pooled share.
      const double passed = job.clamp.passes(pixel) ? value : 0.0;
      gradient.store(plane_offset(gradient, job.channels, plane) + z * gradient.stride[2] +
                         y * gradient.stride[3] + x * gradient.stride[4],
                     passed + pooled_share(job, gradient.pooled, plane, z, y, x));
    };
    write(job.grad_preds, preds, (by_s + by_d) * scale + error);
    write(job.grad_target, target, (by_s - by_d) * scale - error);
  }
}

}  // namespace syncfree::ssim
