// Size and padding of the window along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ssim/ssim.h"

namespace syncfree::ssim {

// `spatial_axis` counts the spatial axes of the images as the caller has them: 2 is the last axis
// of a volume. TorchMetrics sizes the Gaussian by sigma alone, but pads the last axis of a volume
// by kernel_size.
inline Axis window_axis(int spatial_axis, std::int64_t kernel_size, double sigma, bool gaussian,
                        bool valid) {
  const std::int64_t taps =
      gaussian ? 2 * static_cast<std::int64_t>(3.5 * sigma + 0.5) + 1 : kernel_size;
  const std::int64_t mirrored = spatial_axis == 2 ? (kernel_size - 1) / 2 : (taps - 1) / 2;
  return {static_cast<int>(std::min<std::int64_t>(taps, 1 << 30)),
          static_cast<int>(std::min<std::int64_t>(valid ? 0 : mirrored, 1 << 29)),
          gaussian ? sigma : 0.0};
}

}  // namespace syncfree::ssim
