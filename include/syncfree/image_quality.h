// PSNR, SSIM and mean absolute error from one pass over the images.
#pragma once

#include "syncfree/ssim.h"

namespace syncfree {

// Each has one element, or (B) with Reduction::kNone. `psnr` and `mae` have one dtype.
struct ImageQualityViews {
  TensorView psnr = {};
  TensorView ssim = {};
  TensorView mae = {};
};

// Images as for SSIM. Range::from_data() and Reduction::kSum are refused, as are valid windows.
// With Reduction::kMean PSNR comes from the error pooled over the batch.
inline Status image_quality(const ConstTensorView& preds, const ConstTensorView& target,
                            const Range& range, const ImageQualityViews& values,
                            const SsimOptions& options = {}, const Launch& launch = {}) {
  const syncfree_ssim_options all = options.to_c(range);
  const syncfree_launch where = launch.to_c();
  return detail::status_of(syncfree_image_quality(preds.get(), target.get(), values.psnr.get(),
                                                  values.ssim.get(), values.mae.get(), &all,
                                                  &where));
}

}  // namespace syncfree
