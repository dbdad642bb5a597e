// Arguments shared by the functions of the SSIM family.
#pragma once

#include "api/arguments.h"
#include "ssim/ssim.h"

namespace syncfree::api {

// Two batches of images of one shape on one device, (B, C, D, H, W); a flat image has a depth of
// one.
struct Images {
  TensorView preds;
  TensorView target;
  int axes;  // number of spatial axes in the caller's shape: 2 or 3
  std::int64_t batch() const { return preds.size[0]; }
};

Images images(const syncfree_tensor* preds, const syncfree_tensor* target);

// Refuses a size that is not odd and positive, for a spatial axis of the caller's shape.
void check_kernel_size(const syncfree_window& window, int axis);

// Sets the window's axes (depth, height, width). The window must also fit images that are halved
// `scales` - 1 times.
void set_axes(ssim::Axis (&axes)[3], const syncfree_window& window, const Images& images,
              int scales = 1);

// A result with one value for each image (kNone), or a single value.
Result value_result(const char* name, const syncfree_tensor* value, const syncfree_tensor& on,
                    Reduction reduction, std::int64_t batch);

// The problem without its results.
ssim::Problem ssim_problem(const Images& images, const syncfree_ssim_options& options,
                           bool range_may_come_from_data);

}  // namespace syncfree::api
