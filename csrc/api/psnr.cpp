// syncfree_psnr
#include "psnr/psnr.h"

#include "api/execution.h"

using namespace syncfree;
using namespace syncfree::api;

syncfree_status_code syncfree_psnr(const syncfree_tensor* preds, const syncfree_tensor* target,
                                   const syncfree_tensor* value,
                                   const syncfree_psnr_options* options,
                                   const syncfree_launch* launch) {
  return guarded([&] {
    psnr::Problem problem;
    problem.preds = operand("preds", preds);
    problem.target = operand("target", target);
    check_same_shape(problem.preds, problem.target);
    check_same_device("target", *target, *preds);

    const syncfree_psnr_options& given = required("options", options);
    problem.range = range_of(given.range, false);
    problem.base = given.base;
    problem.kept = given.kept;
    problem.reduction = reduction_of(given.reduction);
    if (!(given.base > 0) || given.base == 1)
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected `base` to be positive and not 1, but got ",
           given.base, ".");
    if (given.kept < 0 || given.kept > problem.preds.rank)
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected `kept` in the range [0, ", problem.preds.rank,
           "] for tensors of shape ", shape_text(problem.preds), ", but got ", given.kept, ".");

    problem.plane =
        psnr::plane_elements(problem.preds.size + problem.kept, problem.preds.rank - problem.kept);

    const bool each = problem.reduction == Reduction::kNone;
    const Result out = result("value", value, *preds, problem.preds.size, each ? given.kept : 0);
    problem.value = out.data;
    problem.result_dtype = out.dtype;

    Execution execution(launch, *preds);
    if (!execution.prepare(0, execution.workspace_of(problem))) return;
    std::int64_t values = 1;
    for (int d = 0; each && d < problem.kept; ++d) values *= problem.preds.size[d];
    if (values > 0) execution.execute(problem);
  });
}
