// Structural similarity of tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "syncfree/ssim.h"
#include "syncfree/torch/tensor.h"

namespace syncfree {
namespace detail {

// The dtype of the images, or float32 for bytes.
inline at::ScalarType image_dtype(const at::Tensor& images) {
  return at::isFloatingType(images.scalar_type()) ? images.scalar_type() : at::kFloat;
}

// One value, or one for each image.
inline at::Tensor empty_values(const at::Tensor& images, Reduction reduction,
                               at::ScalarType dtype) {
  TORCH_CHECK(images.dim() == 4 || images.dim() == 5,
              "syncfree: expected images of shape (B, C, H, W) or (B, C, D, H, W), but got ",
              shape_text(images), ".");
  return reduction == Reduction::kNone ? empty_like_device({images.size(0)}, dtype, images)
                                       : empty_like_device({}, dtype, images);
}

}  // namespace detail

// The value of Python's `structural_similarity_index_measure`, bit for bit, as a tensor on the
// images' device, of their dtype. The work is queued on their current stream and nothing waits.
// Throws c10::Error for wrong input.
inline at::Tensor ssim(const at::Tensor& preds, const at::Tensor& target, const Range& range,
                       const SsimOptions& options = {}) {
  const at::Tensor value =
      detail::empty_values(preds, options.reduction, detail::image_dtype(preds));
  detail::run_on(preds, false, [&](const Launch& launch) {
    return ssim(view(preds), view(target), range, result_view(value), options, launch);
  });
  return value;
}

// The value and the map, which has a similarity for each pixel and channel.
inline std::tuple<at::Tensor, at::Tensor> ssim_with_map(const at::Tensor& preds,
                                                        const at::Tensor& target,
                                                        const Range& range,
                                                        const SsimOptions& options = {}) {
  const at::ScalarType dtype = detail::image_dtype(preds);
  const at::Tensor value = detail::empty_values(preds, options.reduction, dtype);
  std::vector<std::int64_t> sizes = preds.sizes().vec();
  for (std::size_t d = 2; d < sizes.size(); ++d)
    // The call refuses sizes that are not positive, with a better message than torch's.
    sizes[d] = std::max<std::int64_t>(
        1, detail::map_size(options.window, static_cast<int>(d) - 2, sizes[d]));
  const at::Tensor map = detail::empty_like_device(sizes, dtype, preds);
  detail::run_on(preds, false, [&](const Launch& launch) {
    return ssim(view(preds), view(target), range, result_view(value), options, launch,
                {result_view(map), {}});
  });
  return {value, map};
}

}  // namespace syncfree
