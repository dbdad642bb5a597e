// torch.ops.syncfree.{binary,multiclass,multilabel}_accuracy_{update,forward,counts}: TorchMetrics'
// counts, added to a metric's states (forward returns the batch's value too), or of each sample.
#include <tuple>
#include <utility>

#include "ops/accuracy_arguments.h"
#include "ops/backend.h"

namespace syncfree::ops {
namespace {

using Counts = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Counts count_samples(AccuracyCall call, const Tensor& bad) {
  auto counts = call.make_counts(bad);
  call.run();
  return {std::move(counts[0]), std::move(counts[1]), std::move(counts[2]), std::move(counts[3])};
}

void binary_update(const Tensor& preds, const Tensor& target, const Tensor& tp, const Tensor& fp,
                   const Tensor& tn, const Tensor& fn, const Tensor& bad, double threshold,
                   std::int64_t options, std::int64_t ignore_index) {
  auto call = AccuracyCall::binary(preds, target, threshold, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  call.run();
}

Tensor binary_forward(const Tensor& preds, const Tensor& target, const Tensor& tp, const Tensor& fp,
                      const Tensor& tn, const Tensor& fn, const Tensor& bad, double threshold,
                      std::int64_t options, std::int64_t ignore_index) {
  auto call = AccuracyCall::binary(preds, target, threshold, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  Tensor value = call.make_value();
  call.run();
  return value;
}

Counts binary_counts(const Tensor& preds, const Tensor& target, const Tensor& bad, double threshold,
                     std::int64_t options, std::int64_t ignore_index) {
  return count_samples(AccuracyCall::binary(preds, target, threshold, options, ignore_index), bad);
}

void multiclass_update(const Tensor& preds, const Tensor& target, const Tensor& tp,
                       const Tensor& fp, const Tensor& tn, const Tensor& fn, const Tensor& bad,
                       std::int64_t num_classes, std::int64_t top_k, std::int64_t options,
                       std::int64_t ignore_index) {
  auto call = AccuracyCall::multiclass(preds, target, num_classes, top_k, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  call.run();
}

Tensor multiclass_forward(const Tensor& preds, const Tensor& target, const Tensor& tp,
                          const Tensor& fp, const Tensor& tn, const Tensor& fn, const Tensor& bad,
                          std::int64_t num_classes, std::int64_t top_k, std::int64_t options,
                          std::int64_t ignore_index) {
  auto call = AccuracyCall::multiclass(preds, target, num_classes, top_k, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  Tensor value = call.make_value();
  call.run();
  return value;
}

Counts multiclass_counts(const Tensor& preds, const Tensor& target, const Tensor& bad,
                         std::int64_t num_classes, std::int64_t top_k, std::int64_t options,
                         std::int64_t ignore_index) {
  return count_samples(
      AccuracyCall::multiclass(preds, target, num_classes, top_k, options, ignore_index), bad);
}

void multilabel_update(const Tensor& preds, const Tensor& target, const Tensor& tp,
                       const Tensor& fp, const Tensor& tn, const Tensor& fn, const Tensor& bad,
                       std::int64_t num_labels, double threshold, std::int64_t options,
                       std::int64_t ignore_index) {
  auto call = AccuracyCall::multilabel(preds, target, num_labels, threshold, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  call.run();
}

Tensor multilabel_forward(const Tensor& preds, const Tensor& target, const Tensor& tp,
                          const Tensor& fp, const Tensor& tn, const Tensor& fn, const Tensor& bad,
                          std::int64_t num_labels, double threshold, std::int64_t options,
                          std::int64_t ignore_index) {
  auto call = AccuracyCall::multilabel(preds, target, num_labels, threshold, options, ignore_index);
  call.add_counts(tp, fp, tn, fn, bad);
  Tensor value = call.make_value();
  call.run();
  return value;
}

Counts multilabel_counts(const Tensor& preds, const Tensor& target, const Tensor& bad,
                         std::int64_t num_labels, double threshold, std::int64_t options,
                         std::int64_t ignore_index) {
  return count_samples(
      AccuracyCall::multilabel(preds, target, num_labels, threshold, options, ignore_index), bad);
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "binary_accuracy_update(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, float threshold, int options, "
      "int ignore_index) -> ()");
  library.def(
      "binary_accuracy_forward(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, float threshold, int options, "
      "int ignore_index) -> Tensor");
  library.def(
      "binary_accuracy_counts(Tensor preds, Tensor target, Tensor(a!) bad, float threshold, "
      "int options, int ignore_index) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "multiclass_accuracy_update(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, int num_classes, int top_k, int options, "
      "int ignore_index) -> ()");
  library.def(
      "multiclass_accuracy_forward(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, int num_classes, int top_k, int options, "
      "int ignore_index) -> Tensor");
  library.def(
      "multiclass_accuracy_counts(Tensor preds, Tensor target, Tensor(a!) bad, int num_classes, "
      "int top_k, "
      "int options, int ignore_index) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "multilabel_accuracy_update(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, int num_labels, float threshold, int options, "
      "int ignore_index) -> ()");
  library.def(
      "multilabel_accuracy_forward(Tensor preds, Tensor target, Tensor(a!) tp, Tensor(b!) fp, "
      "Tensor(c!) tn, "
      "Tensor(d!) fn, Tensor(e!) bad, int num_labels, float threshold, int options, "
      "int ignore_index) -> Tensor");
  library.def(
      "multilabel_accuracy_counts(Tensor preds, Tensor target, Tensor(a!) bad, int num_labels, "
      "float threshold, "
      "int options, int ignore_index) -> (Tensor, Tensor, Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("binary_accuracy_update", TORCH_BOX(&binary_update));
  library.impl("binary_accuracy_forward", TORCH_BOX(&binary_forward));
  library.impl("binary_accuracy_counts", TORCH_BOX(&binary_counts));
  library.impl("multiclass_accuracy_update", TORCH_BOX(&multiclass_update));
  library.impl("multiclass_accuracy_forward", TORCH_BOX(&multiclass_forward));
  library.impl("multiclass_accuracy_counts", TORCH_BOX(&multiclass_counts));
  library.impl("multilabel_accuracy_update", TORCH_BOX(&multilabel_update));
  library.impl("multilabel_accuracy_forward", TORCH_BOX(&multilabel_forward));
  library.impl("multilabel_accuracy_counts", TORCH_BOX(&multilabel_counts));
}

}  // namespace syncfree::ops
