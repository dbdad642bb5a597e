// PSNR, SSIM and mean absolute error of tensors from one pass.
#pragma once

#include "syncfree/image_quality.h"
#include "syncfree/torch/ssim.h"

namespace syncfree {

struct ImageQuality {
  at::Tensor psnr;
  at::Tensor ssim;
  at::Tensor mae;
};

// The values of Python's `image_quality`, bit for bit. `psnr` and `mae` are float32, or float64 for
// float64 `preds`; `ssim` has the dtype of `preds`, float32 for uint8. The work is queued on the
// current stream of the images' device and nothing waits. Throws c10::Error for wrong input.
inline ImageQuality image_quality(const at::Tensor& preds, const at::Tensor& target,
                                  const Range& range, const SsimOptions& options = {}) {
  const at::ScalarType dtype = preds.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const ImageQuality values{
      detail::empty_values(preds, options.reduction, dtype),
      detail::empty_values(preds, options.reduction, detail::image_dtype(preds)),
      detail::empty_values(preds, options.reduction, dtype)};
  detail::run_on(preds, false, [&](const Launch& launch) {
    return image_quality(
        view(preds), view(target), range,
        {result_view(values.psnr), result_view(values.ssim), result_view(values.mae)}, options,
        launch);
  });
  return values;
}

}  // namespace syncfree
