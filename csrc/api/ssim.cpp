// syncfree_ssim
#include "ssim/ssim.h"

#include "api/execution.h"
#include "api/image_arguments.h"
#include "ssim/ssim_math.h"

using namespace syncfree;
using namespace syncfree::api;

namespace {

// The map as a result: it has the rank of the caller's images.
Result map_result(const syncfree_tensor* map, const syncfree_tensor& on,
                  const ssim::Problem& problem, int axes) {
  std::int64_t sizes[5] = {problem.preds.size[0], problem.preds.size[1]};
  for (int i = 0; i < axes; ++i) {
    const int at = 3 - axes + i;
    sizes[2 + i] = ssim::map_size(problem.axes[at], problem.preds.size[2 + at]);
  }
  return result("map", map, on, sizes, 2 + axes);
}

// The kernels round all results to one type.
void check_same_dtype(const char* name, DType dtype, DType of_value) {
  if (dtype != of_value)
    fail(SYNCFREE_WRONG_DTYPE, "Expected `", name, "` to have the dtype of `value`.");
}

}  // namespace

syncfree_status_code syncfree_ssim(const syncfree_tensor* preds, const syncfree_tensor* target,
                                   const syncfree_tensor* value, const syncfree_tensor* map,
                                   const syncfree_tensor* contrast,
                                   const syncfree_ssim_options* options,
                                   const syncfree_launch* launch) {
  return guarded([&] {
    const Images pair = images(preds, target);
    ssim::Problem problem = ssim_problem(pair, required("options", options), true);
    const Result out = value_result("value", value, *preds, problem.reduction, pair.batch());
    problem.value = out.data;
    problem.result_dtype = out.dtype;
    if (map != nullptr) {
      const Result full = map_result(map, *preds, problem, pair.axes);
      check_same_dtype("map", full.dtype, out.dtype);
      problem.map = full.data;
    }
    if (contrast != nullptr) {
      const Result each =
          value_result("contrast", contrast, *preds, Reduction::kNone, pair.batch());
      check_same_dtype("contrast", each.dtype, out.dtype);
      problem.contrast = each.data;
    }
    Execution execution(launch, *preds);
    if (execution.prepare(0, execution.workspace_of(problem))) execution.execute(problem);
  });
}
