// Checks of the states of a mean over batches.
#include "ops/running_mean.h"

namespace syncfree::ops {
namespace {

void check_state(const char* name, const Tensor& state, const Tensor& preds, bool may_count) {
  if (state.numel() != 1)
    fail_value("Expected state `", name, "` to have one element, but got shape ", shape_text(state),
               ". Reset the metric, or make a new one.");
  if (device_of(state) != device_of(preds))
    fail_runtime("Expected state `", name, "` on the device of the images, but it is on another. ",
                 "Move the metric there with `.to(device)`.");
  const DType dtype = dtype_of(state);
  if (!is_floating(dtype) && !(may_count && dtype == DType::kInt64))
    fail_value("Expected state `", name, "` to be a floating ", may_count ? "or an int64 " : "",
               "tensor, but got ", dtype_text(state), ". Reset the metric, or make a new one.");
}

}  // namespace

RunningMean running_mean(Tensor* similarity, Tensor& total, const Tensor& preds) {
  RunningMean mean;
  if (similarity != nullptr) {
    check_state("similarity", *similarity, preds, false);
    mean.sum = similarity->mutable_data_ptr();
    mean.sum_dtype = dtype_of(*similarity);
  }
  check_state("total", total, preds, true);
  mean.total = total.mutable_data_ptr();
  mean.total_dtype = dtype_of(total);
  return mean;
}

}  // namespace syncfree::ops
