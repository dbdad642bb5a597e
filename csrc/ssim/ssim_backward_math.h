// What the CPU and CUDA gradients share: which windows cover a pixel, and the incoming gradients.
//
// A place is a position on an axis that continues beyond the image by reflection. A pixel has a
// place of its own and one for each of its mirror images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ssim/ssim_backward.h"
#include "ssim/ssim_math.h"

namespace syncfree::ssim {

// Positions [begin, end) along one axis.
struct Span {
  std::int64_t begin;
  std::int64_t end;

  SYNCFREE_HD std::int64_t size() const { return end - begin; }
};

// One spatial axis: the sizes of the images and of the map, and the window.
struct BackwardAxis {
  std::int64_t size;
  std::int64_t windows;  // positions of the map
  int taps;
  int pad;

  SYNCFREE_HD bool near_begin(Span pixels) const { return pixels.begin <= pad; }
  SYNCFREE_HD bool near_end(Span pixels) const { return pixels.end >= size - pad; }

  // A range that contains all windows that cover one of the pixels or one of its mirror images.
  SYNCFREE_HD Span windows_over(Span pixels) const {
    const std::int64_t begin = pixels.begin + pad - taps + 1, end = pixels.end + pad;
    return {near_begin(pixels) || begin < 0 ? 0 : begin,
            near_end(pixels) || end > windows ? windows : end};
  }

  // The places that these windows cover.
  SYNCFREE_HD Span covered_by(Span of_windows) const {
    return {of_windows.begin - pad, of_windows.end - pad + taps - 1};
  }

  // A range that contains all places of the pixels.
  SYNCFREE_HD Span places_of(Span pixels) const {
    Span places = pixels;
    if (near_begin(pixels)) places.begin = -smaller(pixels.end - 1, pad);
    if (near_end(pixels)) places.end = 2 * (size - 1) - larger(pixels.begin, size - 1 - pad) + 1;
    return {smaller(places.begin, pixels.begin), larger(places.end, pixels.end)};
  }

  // The windows that cover one place.
  SYNCFREE_HD Span windows_at(std::int64_t place) const {
    return {larger(place + pad - taps + 1, 0), smaller(place + pad + 1, windows)};
  }

  // Calls f with each place of pixel i: its own, and those of its mirror images.
  template <class F>
  SYNCFREE_HD void each_place(std::int64_t i, F&& f) const {
    f(i);
    if (i >= 1 && i <= pad) f(-i);
    if (i <= size - 2 && i >= size - 1 - pad) f(2 * (size - 1) - i);
  }

  bool is_trivial() const { return taps == 1 && pad == 0; }

 private:
  SYNCFREE_HD static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  SYNCFREE_HD static std::int64_t larger(std::int64_t a, std::int64_t b) { return a < b ? b : a; }
};

inline BackwardAxis backward_axis(const Problem& problem, int axis) {
  const Axis& window = problem.axes[axis];
  const std::int64_t size = problem.preds.size[2 + axis];
  return {size, std::max<std::int64_t>(map_size(window, size), 0), window.taps, window.pad};
}

// The fraction of a result's incoming gradient that each window of an image receives.
struct WindowShares {
  double value;     // from the image's value
  double contrast;  // from its contrast term
};

inline WindowShares window_shares(const Problem& problem) {
  double windows = static_cast<double>(problem.preds.size[1]), cropped = windows;
  for (int axis = 0; axis < 3; ++axis) {
    const BackwardAxis a = backward_axis(problem, axis);
    windows *= static_cast<double>(a.windows);
    cropped *= static_cast<double>(std::max<std::int64_t>(a.windows - 2 * a.pad, 0));
  }
  if (problem.reduction == Reduction::kMean) windows *= static_cast<double>(problem.preds.size[0]);
  return {1.0 / windows, cropped > 0.0 ? 1.0 / cropped : 0.0};
}

// The incoming gradient of a result, in double: one element for each image, or a constant.
struct Upstream {
  const void* data;
  DType dtype;
  std::int64_t stride;
  double constant;  // if `data` is null

  SYNCFREE_HD double of(std::int64_t image) const {
    return data == nullptr ? constant : load_as<double>(data, dtype, image * stride);
  }
  bool arrives() const { return data != nullptr || constant != 0.0; }
};

inline Upstream upstream(const TensorView& view, double constant = 0.0) {
  return {view.data, view.dtype, view.rank == 0 ? 0 : view.stride[0], constant};
}

}  // namespace syncfree::ssim
