// torch.ops.syncfree.{binary,multiclass,multilabel}_accuracy and multiclass_accuracy_top_k
#include <vector>

#include "ops/accuracy_arguments.h"
#include "ops/backend.h"

namespace syncfree::ops {
namespace {

Tensor value_of(AccuracyCall call) {
  Tensor value = call.make_value();
  call.run();
  return value;
}

Tensor binary_accuracy(const Tensor& preds, const Tensor& target, double threshold,
                       std::int64_t options, std::int64_t ignore_index) {
  return value_of(AccuracyCall::binary(preds, target, threshold, options, ignore_index));
}

Tensor multiclass_accuracy(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                           std::int64_t top_k, std::int64_t options, std::int64_t ignore_index) {
  return value_of(
      AccuracyCall::multiclass(preds, target, num_classes, top_k, options, ignore_index));
}

Tensor multiclass_accuracy_top_k(const Tensor& preds, const Tensor& target,
                                 std::int64_t num_classes, std::vector<std::int64_t> top_k,
                                 std::int64_t options, std::int64_t ignore_index) {
  return value_of(
      AccuracyCall::multiclass_top_k(preds, target, num_classes, top_k, options, ignore_index));
}

Tensor multilabel_accuracy(const Tensor& preds, const Tensor& target, std::int64_t num_labels,
                           double threshold, std::int64_t options, std::int64_t ignore_index) {
  return value_of(
      AccuracyCall::multilabel(preds, target, num_labels, threshold, options, ignore_index));
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "binary_accuracy(Tensor preds, Tensor target, float threshold, int options, "
      "int ignore_index) -> Tensor");
  library.def(
      "multiclass_accuracy(Tensor preds, Tensor target, int num_classes, int top_k, int options, "
      "int ignore_index) -> Tensor");
  library.def(
      "multiclass_accuracy_top_k(Tensor preds, Tensor target, int num_classes, int[] top_k, "
      "int options, int ignore_index) -> Tensor");
  library.def(
      "multilabel_accuracy(Tensor preds, Tensor target, int num_labels, float threshold, "
      "int options, int ignore_index) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("binary_accuracy", TORCH_BOX(&binary_accuracy));
  library.impl("multiclass_accuracy", TORCH_BOX(&multiclass_accuracy));
  library.impl("multiclass_accuracy_top_k", TORCH_BOX(&multiclass_accuracy_top_k));
  library.impl("multilabel_accuracy", TORCH_BOX(&multilabel_accuracy));
}

}  // namespace syncfree::ops
