// Peak signal-to-noise ratio.
#pragma once

#include "syncfree/launch.h"
#include "syncfree/options.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

struct PsnrOptions {
  // Leading dimensions with a value each; the others are averaged over before the logarithm. 0: one
  // value for all, 1: one for each image.
  int kept = 0;
  Reduction reduction = Reduction::kMean;  // of those values
  double base = 10.0;                      // of the logarithm; 10 gives decibels

  syncfree_psnr_options to_c(const Range& range) const {
    return {range.to_c(), base, kept, static_cast<std::int32_t>(reduction)};
  }
};

// base-log of R^2 / mean squared error, times 10. `preds` and `target` have the same shape and any
// dtype each; `value` has any floating dtype and one element, or the kept sizes with
// Reduction::kNone. Identical inputs give inf, NaN gives NaN, no elements give NaN.
inline Status psnr(const ConstTensorView& preds, const ConstTensorView& target, const Range& range,
                   const TensorView& value, const PsnrOptions& options = {},
                   const Launch& launch = {}) {
  const syncfree_psnr_options all = options.to_c(range);
  const syncfree_launch where = launch.to_c();
  return detail::status_of(syncfree_psnr(preds.get(), target.get(), value.get(), &all, &where));
}

}  // namespace syncfree
