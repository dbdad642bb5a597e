// torch.ops.syncfree.psnr_backward
#include "psnr/psnr_backward.h"

#include <tuple>

#include "ops/backend.h"
#include "ops/gradient.h"
#include "ops/psnr_arguments.h"
#include "psnr/psnr.h"

namespace syncfree::ops {
namespace {

using syncfree::psnr::BackwardProblem;
using syncfree::psnr::Elements;

// The squared error of each result, in float64.
Tensor squared_errors_of(const Tensor& preds, const Tensor& target,
                         const std::vector<bool>& reduced, std::int64_t results,
                         const DataRange& range) {
  const Operands operands = operands_of(preds, target, reduced);
  syncfree::psnr::Problem problem = make_problem(preds, operands, reduced, range, 10.0);
  problem.wants_squared_error = true;
  problem.reduction = Reduction::kNone;
  problem.result_dtype = DType::kFloat64;
  Tensor errors = empty_like_device({&results, 1}, DType::kFloat64, preds);
  problem.value = errors.mutable_data_ptr();
  execute(problem, preds);
  return errors;
}

// Leaves out dimensions of size one. The coefficients are contiguous over the kept dimensions, and
// have stride 0 along the others.
Elements elements_of(const Tensor (&images)[syncfree::psnr::kImages],
                     const std::vector<bool>& reduced) {
  WideView views[syncfree::psnr::kImages];
  for (int k = 0; k < syncfree::psnr::kImages; ++k) views[k] = wide_view_of(images[k]);
  Elements elements;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (views[0].size[d] == 1) continue;
    elements.size[elements.rank] = views[0].size[d];
    elements.stride[syncfree::psnr::kCoefficient][elements.rank] = reduced[d] ? 0 : 1;
    for (int k = 0; k < syncfree::psnr::kImages; ++k)
      elements.stride[k][elements.rank] = views[k].stride[d];
    ++elements.rank;
  }
  std::int64_t results = 1;
  for (int d = elements.rank - 1; d >= 0; --d) {
    std::int64_t& stride = elements.stride[syncfree::psnr::kCoefficient][d];
    if (stride == 0) continue;
    stride = results;
    results *= elements.size[d];
  }
  return elements;
}

// The arriving gradient as one contiguous element per result, or a single one for all.
Tensor arriving(const Tensor& gradient, const Tensor& preds,
                const std::vector<std::int64_t>& sizes) {
  check_gradient("grad_value", gradient, preds, sizes);
  std::int64_t results = 1;
  for (const std::int64_t size : sizes) results *= size;
  Tensor flat = torch::stable::reshape(gradient, {results});
  // The gradient of a sum over the results is one element, expanded.
  if (results > 1 && flat.stride(0) == 0) return torch::stable::narrow(flat, 0, 0, 1);
  return torch::stable::contiguous(flat);
}

std::tuple<Tensor, Tensor> psnr_backward(const Tensor& preds, const Tensor& target,
                                         const Tensor& grad_value, bool need_preds,
                                         bool need_target, double data_range,
                                         std::optional<std::vector<double>> interval, double base,
                                         std::int64_t reduction,
                                         std::optional<std::vector<std::int64_t>> dim) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  check_dtypes(preds, target);
  const std::vector<bool> reduced = reduced_dims(preds, dim);
  BackwardProblem problem;
  problem.range = range_of(data_range, interval);
  problem.base = base;
  problem.reduction = static_cast<Reduction>(reduction);
  const bool each = problem.reduction == Reduction::kNone;
  const Tensor gradient =
      arriving(grad_value, preds, each ? kept_sizes(preds, reduced) : std::vector<std::int64_t>{});

  Tensor grad_preds = make_gradient("preds", preds, need_preds);
  Tensor grad_target = make_gradient("target", target, need_target);
  if (!(need_preds || need_target) || preds.numel() == 0) return {grad_preds, grad_target};
  problem.elements = elements_of(
      {preds, target, need_preds ? grad_preds : preds, need_target ? grad_target : target},
      reduced);
  for (const std::int64_t size : kept_sizes(preds, reduced)) problem.results *= size;
  problem.preds = preds.const_data_ptr();
  problem.target = target.const_data_ptr();
  if (need_preds) problem.grad_preds = grad_preds.mutable_data_ptr();
  if (need_target) problem.grad_target = grad_target.mutable_data_ptr();
  problem.dtype[psnr::kPreds] = problem.dtype[psnr::kGradPreds] = dtype_of(preds);
  problem.dtype[psnr::kTarget] = problem.dtype[psnr::kGradTarget] = dtype_of(target);
  problem.grad_value = view_of(gradient);

  const Tensor errors = squared_errors_of(preds, target, reduced, problem.results, problem.range);
  problem.squared_errors = static_cast<const double*>(errors.const_data_ptr());
  execute(problem, preds);
  return {grad_preds, grad_target};
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "psnr_backward(Tensor preds, Tensor target, Tensor grad_value, bool need_preds, "
      "bool need_target, float data_range, float[]? interval, float base, int reduction, "
      "int[]? dim) -> (Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("psnr_backward", TORCH_BOX(&psnr_backward));
}

}  // namespace syncfree::ops
