// Checks of images and windows.
#include "api/image_arguments.h"

#include <algorithm>

#include "ssim/volume_view.h"
#include "ssim/window_axis.h"

namespace syncfree::api {
namespace {

constexpr int kLastOfVolumes = 2;  // an axis that is padded by `kernel_size` (window_axis.h)

}  // namespace

Images images(const syncfree_tensor* preds, const syncfree_tensor* target) {
  const TensorView a = operand("preds", preds), b = operand("target", target);
  check_same_shape(a, b);
  check_same_device("target", *target, *preds);
  if (a.rank != 4 && a.rank != 5)
    fail(SYNCFREE_WRONG_SHAPE,
         "Expected `preds` and `target` of shape (B, C, H, W) or (B, C, D, H, W), but got ",
         shape_text(a), ".");
  for (const TensorView* view : {&a, &b})
    if (!is_floating(view->dtype) && view->dtype != DType::kUInt8)
      fail(SYNCFREE_WRONG_DTYPE, "Expected `", view == &a ? "preds" : "target",
           "` to be images of a floating dtype or uint8, but got ", dtype_text(view->dtype), ".");
  return {ssim::volume_view(a), ssim::volume_view(b), a.rank - 2};
}

void check_kernel_size(const syncfree_window& window, int axis) {
  const int size = window.kernel_size[axis];
  if (!(size > 0 && size % 2 == 1))
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `kernel_size` to be odd and positive, but got ", size,
         " for spatial axis ", axis, ".");
}

void set_axes(ssim::Axis (&axes)[3], const syncfree_window& window, const Images& images,
              int scales) {
  // Without planes (no images or no channels) nothing is mirrored; in a plane, an axis without
  // pixels cannot be.
  const bool has_planes = images.preds.size[0] > 0 && images.preds.size[1] > 0;
  for (int i = 0; i < images.axes; ++i) {
    const bool gaussian = window.gaussian != 0, valid = window.valid != 0;
    const double sigma = window.sigma[i];
    if (gaussian && !(sigma > 0 && sigma < 1e6))
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected `sigma` to be positive and less than 1e6, but got ",
           sigma, " for spatial axis ", i, ".");
    if (!gaussian || (i == kLastOfVolumes && !valid)) check_kernel_size(window, i);
    const ssim::Axis axis = ssim::window_axis(i, window.kernel_size[i], sigma, gaussian, valid);
    const int at = 3 - images.axes + i;
    axes[at] = axis;
    for (int scale = 0; scale < scales; ++scale) {
      const std::int64_t size = images.preds.size[2 + at] >> scale;
      const bool mirrors = axis.pad < size || !has_planes;
      if (!mirrors || size + 2 * axis.pad < axis.taps)
        fail(SYNCFREE_WRONG_SHAPE, "Expected images larger than half the window of ", axis.taps,
             " pixels (all of it, for a valid window), but spatial axis ", i, " has ", size,
             " pixels", scale == 0 ? "." : ", halved for a coarser scale.");
    }
  }
}

Result value_result(const char* name, const syncfree_tensor* value, const syncfree_tensor& on,
                    Reduction reduction, std::int64_t batch) {
  return result(name, value, on, &batch, reduction == Reduction::kNone ? 1 : 0);
}

ssim::Problem ssim_problem(const Images& images, const syncfree_ssim_options& options,
                           bool range_may_come_from_data) {
  ssim::Problem problem;
  problem.preds = images.preds;
  problem.target = images.target;
  set_axes(problem.axes, options.window, images);
  problem.range = range_of(options.range, range_may_come_from_data);
  problem.k1 = options.k1;
  problem.k2 = options.k2;
  problem.reduction = reduction_of(options.reduction);
  return problem;
}

}  // namespace syncfree::api
