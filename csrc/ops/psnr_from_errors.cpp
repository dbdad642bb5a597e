// torch.ops.syncfree.psnr_from_errors
#include "ops/backend.h"
#include "ops/broadcast.h"
#include "psnr/from_errors.h"

namespace syncfree::ops {
namespace {

// The dtype of torch's division: an integer type yields to a floating one.
DType quotient_dtype(const Tensor& num, DType num_dtype, const Tensor& denom, DType denom_dtype) {
  if (!is_floating(denom_dtype)) return as_floating(num_dtype);
  if (!is_floating(num_dtype)) return denom_dtype;
  return common_dtype(num_dtype, num.dim() == 0, denom_dtype, denom.dim() == 0);
}

Tensor psnr_from_errors(const Tensor& squared_error, const Tensor& total, const Tensor& data_range,
                        double base, std::int64_t reduction) {
  check_same_device(squared_error, total, "squared_error", "total");
  check_same_device(squared_error, data_range, "squared_error", "data_range");
  const std::vector<std::int64_t> sizes =
      common_sizes(squared_error, total, "squared_error", "total");
  check_dtypes(squared_error, total, "squared_error", "total");
  if (data_range.numel() != 1)
    fail_value("Expected `data_range` to have one element, but got shape ", shape_text(data_range),
               ".");
  const Operands operands = broadcast(squared_error, total, sizes);
  syncfree::psnr::ErrorSums sums;
  sums.squared_error = operands.first;
  sums.total = operands.second;
  sums.data_range = data_range.const_data_ptr();
  sums.data_range_dtype = dtype_of(data_range, "data_range");
  sums.base = base;
  sums.reduction = static_cast<Reduction>(reduction);
  const DType mean =
      quotient_dtype(squared_error, operands.first.dtype, total, operands.second.dtype);
  sums.result_dtype = common_dtype(mean, sizes.empty(), as_floating(sums.data_range_dtype), true);

  const bool each = sums.reduction == Reduction::kNone;
  Tensor value = empty_of_any_rank(each ? sizes : std::vector<std::int64_t>{}, sums.result_dtype,
                                   squared_error);
  sums.value = value.mutable_data_ptr();
  if (!each || value.numel() > 0) execute(sums, squared_error);
  return value;
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "psnr_from_errors(Tensor squared_error, Tensor total, Tensor data_range, float base, "
      "int reduction) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("psnr_from_errors", TORCH_BOX(&psnr_from_errors));
}

}  // namespace syncfree::ops
