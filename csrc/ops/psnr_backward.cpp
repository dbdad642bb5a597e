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

// PSNR of each result in float64, whatever was returned forward.
Tensor values_of(const Tensor& preds, const Tensor& target, const std::vector<bool>& reduced,
                 const DataRange& range, double base) {
  const Operands operands = operands_of(preds, target, reduced);
  syncfree::psnr::Problem problem;
  problem.preds = operands.first;
  problem.target = operands.second;
  problem.kept = operands.leading;
  problem.range = range;
  problem.base = base;
  problem.reduction = Reduction::kNone;
  problem.result_dtype = DType::kFloat64;
  std::int64_t results = 1;
  for (const std::int64_t size : kept_sizes(preds, reduced)) results *= size;
  Tensor values = empty_like_device({&results, 1}, DType::kFloat64, preds);
  problem.value = values.mutable_data_ptr();
  execute(problem, preds);
  return values;
}

void set_strides(Elements& elements, syncfree::psnr::Operand operand, const Tensor& tensor,
                 const std::vector<bool>& reduced) {
  const WideView view = kept_first(wide_view_of(tensor), reduced);
  elements.rank = view.rank;
  std::copy(view.size.begin(), view.size.end(), elements.size);
  std::copy(view.stride.begin(), view.stride.end(), elements.stride[operand]);
}

// As many elements as there are results, side by side, or one for all.
Tensor arriving(const Tensor& gradient, const Tensor& preds,
                const std::vector<std::int64_t>& sizes) {
  check_same_device(gradient, preds, "grad_value", "preds");
  const auto given = gradient.sizes();
  if (!std::equal(given.begin(), given.end(), sizes.begin(), sizes.end()))
    fail_runtime("Expected `grad_value` to have the shape of the result, but got ",
                 shape_text(gradient), ".");
  if (!is_floating(dtype_of(gradient)))
    fail_runtime("Expected `grad_value` to be of a floating dtype, but got ", dtype_text(gradient),
                 ".");
  std::int64_t results = 1;
  for (const std::int64_t size : sizes) results *= size;
  Tensor flat = torch::stable::reshape(gradient, {results});
  // A sum over results hands each the same memory.
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
  problem.range.value = data_range;
  if (interval.has_value()) {
    if (interval->size() != 2) fail_value("Expected `interval` to be (low, high).");
    problem.range = {DataRange::Source::kInterval, data_range, (*interval)[0], (*interval)[1]};
  }
  problem.base = base;
  problem.reduction = static_cast<Reduction>(reduction);
  const bool each = problem.reduction == Reduction::kNone;
  const Tensor gradient =
      arriving(grad_value, preds, each ? kept_sizes(preds, reduced) : std::vector<std::int64_t>{});

  Tensor grad_preds = make_gradient("preds", preds, need_preds);
  Tensor grad_target = make_gradient("target", target, need_target);
  if (!(need_preds || need_target) || preds.numel() == 0) return {grad_preds, grad_target};
  problem.elements.kept = static_cast<int>(std::count(reduced.begin(), reduced.end(), false));
  set_strides(problem.elements, psnr::kPreds, preds, reduced);
  set_strides(problem.elements, psnr::kTarget, target, reduced);
  set_strides(problem.elements, psnr::kGradPreds, need_preds ? grad_preds : preds, reduced);
  set_strides(problem.elements, psnr::kGradTarget, need_target ? grad_target : target, reduced);
  problem.preds = preds.const_data_ptr();
  problem.target = target.const_data_ptr();
  if (need_preds) problem.grad_preds = grad_preds.mutable_data_ptr();
  if (need_target) problem.grad_target = grad_target.mutable_data_ptr();
  problem.dtype[psnr::kPreds] = problem.dtype[psnr::kGradPreds] = dtype_of(preds);
  problem.dtype[psnr::kTarget] = problem.dtype[psnr::kGradTarget] = dtype_of(target);
  problem.grad_value = view_of(gradient);

  const Tensor values = values_of(preds, target, reduced, problem.range, base);
  problem.values = static_cast<const double*>(values.const_data_ptr());
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
