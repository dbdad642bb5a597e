// Options that several metrics have in common.
#pragma once

#include <cstdint>

#include "syncfree/c_api.h"

namespace syncfree {

// The range R of image values: a number, an interval, or the range of the data.
class Range {
 public:
  // A positive number: 1 for images in [0, 1], 255 for bytes.
  Range(double value) : range_{value, 0.0, 0.0, SYNCFREE_RANGE_VALUE} {}  // NOLINT: implicit

  // Both images are clamped to [low, high]; R is high - low.
  static Range interval(double low, double high) {
    return {{high - low, low, high, SYNCFREE_RANGE_INTERVAL}};
  }

  // The larger of the two tensors' max - min over the whole batch, found on the device. SSIM and
  // MS-SSIM only.
  static Range from_data() { return {{0.0, 0.0, 0.0, SYNCFREE_RANGE_DATA}}; }

  const syncfree_range& to_c() const { return range_; }

 private:
  Range(const syncfree_range& range) : range_(range) {}  // NOLINT: implicit

  syncfree_range range_;
};

// How the metric's values are reduced.
enum class Reduction : std::int32_t {
  kNone = SYNCFREE_NO_REDUCTION,
  kMean = SYNCFREE_MEAN,
  kSum = SYNCFREE_SUM,
};

// One number for all spatial axes, or one for each: (height, width) or (depth, height, width).
template <class T>
class PerAxis {
 public:
  PerAxis(T all) : value_{all, all, all} {}                              // NOLINT: implicit
  PerAxis(T height, T width) : value_{height, width, T{0}} {}            // NOLINT: implicit
  PerAxis(T depth, T height, T width) : value_{depth, height, width} {}  // NOLINT: implicit

  T operator[](int axis) const { return value_[axis]; }

 private:
  T value_[3];
};

// The window of the SSIM family. With a Gaussian, kernel_size still sets the padding of a volume's
// last axis and the least size of images for MS-SSIM, as in TorchMetrics.
struct Window {
  bool gaussian = true;
  PerAxis<double> sigma = 1.5;    // of the Gaussian, which has 2 * int(3.5 * sigma + 0.5) + 1 taps
  PerAxis<int> kernel_size = 11;  // of a uniform window; odd
  bool valid = false;             // only windows inside the image, instead of mirrored borders

  syncfree_window to_c() const {
    return {{sigma[0], sigma[1], sigma[2]},
            {kernel_size[0], kernel_size[1], kernel_size[2]},
            gaussian,
            valid};
  }
};

}  // namespace syncfree
