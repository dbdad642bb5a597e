// Accuracy of tensors.
#pragma once

#include <algorithm>
#include <vector>

#include "syncfree/accuracy.h"
#include "syncfree/torch/tensor.h"

namespace syncfree {
namespace detail {

inline at::Tensor empty_accuracy(const at::Tensor& preds, const at::Tensor& target, bool samplewise,
                                 bool each_class, std::int64_t classes) {
  TORCH_CHECK(!samplewise || target.dim() > 0,
              "syncfree: expected a target of at least one dimension, but got a scalar.");
  std::vector<std::int64_t> sizes;
  if (samplewise) sizes.push_back(target.size(0));
  if (each_class) sizes.push_back(std::max<std::int64_t>(classes, 0));
  return empty_like_device(sizes, at::kFloat, preds);
}

}  // namespace detail

// The values of Python's `multiclass_accuracy`, `binary_accuracy` and `multilabel_accuracy`, bit
// for bit, as float32 tensors on the inputs' device; `samplewise` keeps the dimension of a single
// sample. The work is queued on their current stream and nothing waits. Throw c10::Error for wrong
// input; bad labels are wrong input on the CPU, and NaN on CUDA.
inline at::Tensor multiclass_accuracy(const at::Tensor& preds, const at::Tensor& target,
                                      std::int64_t num_classes,
                                      const MulticlassOptions& options = {}) {
  const at::Tensor value = detail::empty_accuracy(preds, target, options.labels.samplewise,
                                                  options.average == Average::kNone, num_classes);
  detail::run_on(preds, false, [&](const Launch& launch) {
    return multiclass_accuracy(view(preds), view(target), num_classes, result_view(value), options,
                               launch);
  });
  return value;
}

inline at::Tensor binary_accuracy(const at::Tensor& preds, const at::Tensor& target,
                                  const BinaryOptions& options = {}) {
  const at::Tensor value =
      detail::empty_accuracy(preds, target, options.labels.samplewise, false, 0);
  detail::run_on(preds, false, [&](const Launch& launch) {
    return binary_accuracy(view(preds), view(target), result_view(value), options, launch);
  });
  return value;
}

inline at::Tensor multilabel_accuracy(const at::Tensor& preds, const at::Tensor& target,
                                      std::int64_t num_labels,
                                      const MultilabelOptions& options = {}) {
  const at::Tensor value = detail::empty_accuracy(preds, target, options.labels.samplewise,
                                                  options.average == Average::kNone, num_labels);
  detail::run_on(preds, false, [&](const Launch& launch) {
    return multilabel_accuracy(view(preds), view(target), num_labels, result_view(value), options,
                               launch);
  });
  return value;
}

}  // namespace syncfree
