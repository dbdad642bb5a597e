// Arguments that the functions of the SSIM family have in common.
#pragma once

#include "api/arguments.h"
#include "ssim/ssim.h"

namespace syncfree::api {

// Two batches of images of one shape on one device, (B, C, D, H, W); a flat image has a depth of
// one.
struct Images {
  TensorView preds;
  TensorView target;
  int axes;  // spatial ones, as the caller counts them: 2 or 3
  std::int64_t batch() const { return preds.size[0]; }
};

Images images(const syncfree_tensor* preds, const syncfree_tensor* target);

// Depth, height and width of the window, which must fit also where the images are halved `scales`
// - 1 times.
void set_axes(ssim::Axis (&axes)[3], const syncfree_window& window, const Images& images,
              int scales = 1);

// A value for each image, or one.
Result value_result(const char* name, const syncfree_tensor* value, const syncfree_tensor& on,
                    Reduction reduction, std::int64_t batch);

// Everything but the results.
ssim::Problem ssim_problem(const Images& images, const syncfree_ssim_options& options,
                           bool range_may_come_from_data);

}  // namespace syncfree::api
