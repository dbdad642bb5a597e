// syncfree_ms_ssim
#include "ms_ssim/ms_ssim.h"

#include <algorithm>
#include <type_traits>

#include "api/execution.h"
#include "api/image_arguments.h"
#include "ms_ssim/ms_ssim_pyramid.h"

using namespace syncfree;
using namespace syncfree::api;

namespace {

// TorchMetrics' rules. They check kernel_size even for a Gaussian, which is sized by sigma.
void check_sizes(const Images& pair, int scales, const syncfree_window& window) {
  if (scales < 1 || scales > ms_ssim::kMaxScales)
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected 1 to ", ms_ssim::kMaxScales,
         " exponents (`betas`), but got ", scales, ".");
  const std::int64_t least = std::int64_t{1} << scales;
  const std::int64_t divisor = std::max(1, (scales - 1) * (scales - 1));
  for (int axis : {0, 1}) {
    const std::int64_t size = pair.preds.size[3 + axis];
    // TorchMetrics takes the first two entries, also for volumes.
    check_kernel_size(window, axis);
    const std::int64_t kernel = window.kernel_size[axis];
    if (size < least || size / divisor <= kernel - 1)
      fail(SYNCFREE_WRONG_SHAPE, "Expected images of at least ", std::max(least, kernel * divisor),
           " pixels in ", axis == 0 ? "height" : "width", " for ", scales,
           " scales and a kernel size of ", kernel, ", but got ", size, ".");
  }
}

ms_ssim::Problem make_problem(const Images& pair, const syncfree_ms_ssim_options& options) {
  check_sizes(pair, options.scales, options.window);
  if (options.window.valid != 0)
    fail(SYNCFREE_INVALID_ARGUMENT,
         "Expected a window with mirrored borders: MS-SSIM has none that is `valid`.");
  check_choice("normalize", options.normalize, SYNCFREE_SIMPLE);
  ms_ssim::Problem problem;
  problem.preds = pair.preds;
  problem.target = pair.target;
  problem.exponents.scales = options.scales;
  std::copy_n(options.betas, options.scales, problem.exponents.beta);
  problem.exponents.normalize = static_cast<ms_ssim::Normalize>(options.normalize);
  set_axes(problem.axes, options.window, pair, options.scales);
  problem.range = range_of(options.range, true);
  problem.k1 = options.k1;
  problem.k2 = options.k2;
  problem.reduction = reduction_of(options.reduction);
  return problem;
}

}  // namespace

syncfree_status_code syncfree_ms_ssim(const syncfree_tensor* preds, const syncfree_tensor* target,
                                      const syncfree_tensor* value,
                                      const syncfree_ms_ssim_options* options,
                                      const syncfree_launch* launch) {
  static_assert(std::extent_v<decltype(syncfree_ms_ssim_options::betas)> == ms_ssim::kMaxScales);
  return guarded([&] {
    const Images pair = images(preds, target);
    ms_ssim::Problem problem = make_problem(pair, required("options", options));
    const Result out = value_result("value", value, *preds, problem.reduction, pair.batch());
    problem.value = out.data;
    problem.result_dtype = out.dtype;

    const std::size_t pyramid = aligned_to_workspace(static_cast<std::size_t>(
        ms_ssim::pyramid_elements(problem) * size_of(ms_ssim::pooled_dtype(problem))));
    Execution execution(launch, *preds);
    // A placeholder with the alignment that the memory will have.
    problem.preds_pyramid = problem.target_pyramid = reinterpret_cast<void*>(kWorkspaceAlignment);
    if (!execution.prepare(2 * pyramid, execution.workspace_of(problem))) return;
    problem.preds_pyramid = execution.memory();
    problem.target_pyramid = static_cast<std::byte*>(execution.memory()) + pyramid;
    execution.execute(problem);
  });
}
