// torch.ops.syncfree.psnr, psnr_update and psnr_with_squared_error
#include "psnr/psnr.h"

#include <tuple>

#include "ops/any_rank.h"
#include "ops/backend.h"
#include "ops/psnr_arguments.h"

namespace syncfree::ops {
namespace {

DType result_dtype(DType a, DType b, bool pooled) {
  if (a == DType::kFloat64 || b == DType::kFloat64) return DType::kFloat64;
  if (pooled) return DType::kFloat32;
  const auto as_float = [](DType t) { return is_floating(t) ? t : DType::kFloat32; };
  return as_float(a) == as_float(b) ? as_float(a) : DType::kFloat32;
}

Tensor psnr(const Tensor& preds, const Tensor& target, double data_range,
            std::optional<std::vector<double>> interval, double base, std::int64_t reduction,
            std::optional<std::vector<std::int64_t>> dim) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  check_dtypes(preds, target);
  const std::vector<bool> reduced = reduced_dims(preds, dim);
  const Operands operands = operands_of(preds, target, reduced);
  syncfree::psnr::Problem problem =
      make_problem(preds, operands, reduced, range_of(data_range, interval), base);
  problem.reduction = static_cast<Reduction>(reduction);

  const std::vector<std::int64_t> kept = kept_sizes(preds, reduced);
  problem.result_dtype = result_dtype(problem.preds.dtype, problem.target.dtype, kept.empty());
  const bool each = problem.reduction == Reduction::kNone;
  Tensor value =
      empty_of_any_rank(each ? kept : std::vector<std::int64_t>{}, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  if (!each || value.numel() > 0) execute(problem, preds);
  return value;
}

void check_state(const Tensor& state, const char* name, const Tensor& preds) {
  if (state.numel() != 1)
    fail_value("Expected `", name, "` to have one element, but got shape ", shape_text(state), ".");
  check_same_device(state, preds, name, "preds");
}

// Adds a batch to a metric's states and returns the batch's own value, in the dtype of the sum.
Tensor psnr_update(const Tensor& preds, const Tensor& target, Tensor squared_error, Tensor total,
                   const Tensor& data_range, std::optional<std::vector<double>> interval,
                   double base) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  check_dtypes(preds, target);
  check_state(squared_error, "sum_squared_error", preds);
  check_state(total, "total", preds);
  check_state(data_range, "data_range", preds);
  const std::vector<bool> reduced = reduced_dims(preds, std::nullopt);
  const Operands operands = operands_of(preds, target, reduced);
  syncfree::psnr::Problem problem =
      make_problem(preds, operands, reduced, range_of(1.0, interval), base);
  problem.states = {squared_error.mutable_data_ptr(), dtype_of(squared_error),
                    total.mutable_data_ptr(),         dtype_of(total),
                    data_range.const_data_ptr(),      dtype_of(data_range)};
  if (!is_floating(problem.states.squared_error_dtype))
    fail_value("Expected `sum_squared_error` to be a floating tensor, but got ",
               dtype_text(squared_error), ".");
  if (!is_floating(problem.states.total_dtype) && problem.states.total_dtype != DType::kInt64)
    fail_value("Expected `total` to be a floating or an int64 tensor, but got ", dtype_text(total),
               ".");
  problem.result_dtype = problem.states.squared_error_dtype;
  Tensor value = empty_like_device({}, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  execute(problem, preds);
  return value;
}

// PSNR with the range in a tensor, and the squared error of each result: what a batch appends to a
// metric that keeps the results apart. At least in float32: sums in half precision would overflow.
std::tuple<Tensor, Tensor> psnr_with_squared_error(const Tensor& preds, const Tensor& target,
                                                   const Tensor& data_range,
                                                   std::optional<std::vector<double>> interval,
                                                   double base, std::int64_t reduction,
                                                   std::optional<std::vector<std::int64_t>> dim) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  check_dtypes(preds, target);
  check_state(data_range, "data_range", preds);
  const std::vector<bool> reduced = reduced_dims(preds, dim);
  const Operands operands = operands_of(preds, target, reduced);
  syncfree::psnr::Problem problem =
      make_problem(preds, operands, reduced, range_of(1.0, interval), base);
  problem.reduction = static_cast<Reduction>(reduction);
  problem.result_dtype = result_dtype(problem.preds.dtype, problem.target.dtype, true);

  const std::vector<std::int64_t> kept = kept_sizes(preds, reduced);
  const bool each = problem.reduction == Reduction::kNone;
  Tensor squared_error = empty_of_any_rank(kept, problem.result_dtype, preds);
  Tensor value =
      empty_of_any_rank(each ? kept : std::vector<std::int64_t>{}, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  problem.states.squared_error = squared_error.mutable_data_ptr();
  problem.states.squared_error_dtype = problem.result_dtype;
  problem.states.data_range = data_range.const_data_ptr();
  problem.states.data_range_dtype = dtype_of(data_range);
  if (!each || value.numel() > 0) execute(problem, preds);
  return {value, squared_error};
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "psnr(Tensor preds, Tensor target, float data_range, float[]? interval, float base, "
      "int reduction, int[]? dim) -> Tensor");
  library.def(
      "psnr_update(Tensor preds, Tensor target, Tensor(a!) squared_error, Tensor(b!) total, "
      "Tensor data_range, float[]? interval, float base) -> Tensor");
  library.def(
      "psnr_with_squared_error(Tensor preds, Tensor target, Tensor data_range, float[]? interval, "
      "float base, int reduction, int[]? dim) -> (Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("psnr", TORCH_BOX(&psnr));
  library.impl("psnr_update", TORCH_BOX(&psnr_update));
  library.impl("psnr_with_squared_error", TORCH_BOX(&psnr_with_squared_error));
}

}  // namespace syncfree::ops
