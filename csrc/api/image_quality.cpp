// syncfree_image_quality
#include "image_quality/image_quality.h"

#include <algorithm>

#include "api/execution.h"
#include "api/image_arguments.h"

using namespace syncfree;
using namespace syncfree::api;

syncfree_status_code syncfree_image_quality(const syncfree_tensor* preds,
                                            const syncfree_tensor* target,
                                            const syncfree_tensor* psnr,
                                            const syncfree_tensor* ssim, const syncfree_tensor* mae,
                                            const syncfree_ssim_options* options,
                                            const syncfree_launch* launch) {
  return guarded([&] {
    const Images pair = images(preds, target);
    ssim::Problem problem = ssim_problem(pair, required("options", options), false);
    if (problem.reduction == Reduction::kSum || options->window.valid != 0)
      fail(SYNCFREE_INVALID_ARGUMENT,
           "Expected `reduction` to be none or the mean, and a window with mirrored borders.");
    const auto each = [&](const char* name, const syncfree_tensor* value) {
      return value_result(name, value, *preds, problem.reduction, pair.batch());
    };
    const Result psnr_out = each("psnr", psnr), ssim_out = each("ssim", ssim),
                 mae_out = each("mae", mae);
    if (psnr_out.dtype != mae_out.dtype)
      fail(SYNCFREE_WRONG_DTYPE, "Expected `psnr` and `mae` to have one dtype.");
    problem.value = ssim_out.data;
    problem.result_dtype = ssim_out.dtype;

    image_quality::Problem finish;
    finish.images = pair.batch();
    finish.elements = finish.images == 0 ? 0 : pair.preds.numel() / finish.images;
    finish.range = problem.range;
    finish.reduction = problem.reduction;
    finish.psnr = psnr_out.data;
    finish.mean_absolute_error = mae_out.data;
    finish.result_dtype = psnr_out.dtype;

    Execution execution(launch, *preds);
    double placeholder = 0.0;
    problem.squared_error = problem.absolute_error = &placeholder;
    const std::size_t bytes =
        2 * sizeof(double) * static_cast<std::size_t>(std::max<std::int64_t>(finish.images, 1));
    if (!execution.prepare(bytes, execution.workspace_of(problem))) return;
    problem.squared_error = static_cast<double*>(execution.memory());
    problem.absolute_error = problem.squared_error + finish.images;
    execution.execute(problem);
    finish.squared_error = problem.squared_error;
    finish.absolute_error = problem.absolute_error;
    execution.execute(finish);
  });
}
