// Structural similarity.
#pragma once

#include <cstdint>

#include "syncfree/launch.h"
#include "syncfree/options.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {
namespace detail {

// By how much windows that stay inside the image shorten spatial axis `axis`.
inline std::int64_t border(const Window& window, int axis) {
  if (!window.gaussian) return std::int64_t{window.kernel_size[axis]} - 1;
  const double sigma = window.sigma[axis];
  // The call refuses all others, of which not every one can be counted in taps.
  return sigma > 0 && sigma < 1e6 ? 2 * static_cast<std::int64_t>(3.5 * sigma + 0.5) : 0;
}

// Of a map. As in TorchMetrics, the last axis of a volume is padded by kernel_size even under a
// Gaussian.
inline std::int64_t map_size(const Window& window, int axis, std::int64_t size) {
  if (window.valid) return size - border(window, axis);
  if (axis != 2) return size;
  return size + (std::int64_t{window.kernel_size[2]} - 1) / 2 * 2 - border(window, axis);
}

}  // namespace detail

struct SsimOptions {
  Window window = {};
  Reduction reduction = Reduction::kMean;
  double k1 = 0.01;
  double k2 = 0.03;

  syncfree_ssim_options to_c(const Range& range) const {
    return {range.to_c(), window.to_c(), k1, k2, static_cast<std::int32_t>(reduction)};
  }
};

// Results besides the value, both of its dtype. A default view is a result that is not wanted. The
// map has the sizes of the images, less the window's size - 1 on each axis if the window is valid;
// under a Gaussian that is not, a volume's last axis has size + kernel_size - taps.
struct SsimExtras {
  TensorView map = {};       // of each pixel and channel
  TensorView contrast = {};  // (B): mean of the contrast term over the map without the border
};

// Images (B, C, H, W) or (B, C, D, H, W) of a floating dtype or uint8. `value` has any floating
// dtype and one element, or (B) with Reduction::kNone. An image's value has the same bits in any
// batch and any memory layout.
inline Status ssim(const ConstTensorView& preds, const ConstTensorView& target, const Range& range,
                   const TensorView& value, const SsimOptions& options = {},
                   const Launch& launch = {}, const SsimExtras& extras = {}) {
  const syncfree_ssim_options all = options.to_c(range);
  const syncfree_launch where = launch.to_c();
  return detail::status_of(syncfree_ssim(preds.get(), target.get(), value.get(), extras.map.get(),
                                         extras.contrast.get(), &all, &where));
}

}  // namespace syncfree
