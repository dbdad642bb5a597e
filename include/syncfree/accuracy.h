// Accuracy from scores, probabilities or labels.
#pragma once

#include <cstdint>
#include <optional>

#include "syncfree/launch.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

enum class Average : std::int32_t {
  kMicro = SYNCFREE_MICRO,
  kMacro = SYNCFREE_MACRO,
  kWeighted = SYNCFREE_WEIGHTED,
  kNone = SYNCFREE_NO_AVERAGE,
};

// Bad labels (outside [0, classes), or binary ones other than 0 and 1) are left out and make the
// result NaN. On the CPU the call also returns kBadLabel; on CUDA it does not wait to find out.
struct LabelOptions {
  bool samplewise = false;  // a value for each sample instead of one for the batch
  std::optional<std::int64_t> ignore_index = {};  // target value that is left out
  bool validate = true;  // false: a bad label counts as wrong in a micro average, else is left out
  std::int64_t* bad_labels = nullptr;  // on the operands' device; grows by the number of bad labels
};

struct MulticlassOptions {
  Average average = Average::kMicro;
  int top_k = 1;
  LabelOptions labels = {};
};

struct BinaryOptions {
  double threshold = 0.5;
  LabelOptions labels = {};
};

struct MultilabelOptions {
  Average average = Average::kMicro;
  double threshold = 0.5;
  LabelOptions labels = {};
};

namespace detail {

inline syncfree_accuracy_options label_options(syncfree_task task, const LabelOptions& labels) {
  syncfree_accuracy_options all{};
  all.task = task;
  all.average = SYNCFREE_MICRO;
  all.top_k = 1;
  all.threshold = 0.5;
  all.samplewise = labels.samplewise;
  all.has_ignore_index = labels.ignore_index.has_value();
  all.ignore_index = labels.ignore_index.value_or(0);
  all.validate = labels.validate;
  return all;
}

inline Status accuracy(const ConstTensorView& preds, const ConstTensorView& target,
                       const TensorView& value, const LabelOptions& labels,
                       const syncfree_accuracy_options& all, const Launch& launch) {
  const syncfree_launch where = launch.to_c();
  return status_of(
      syncfree_accuracy(preds.get(), target.get(), value.get(), labels.bad_labels, &all, &where));
}

}  // namespace detail

// `preds`: scores (N, C, ...) of a floating dtype, or labels of the shape of `target`, (N, ...).
// `value` is float32: one element; (C) with Average::kNone; (N) or (N, C) samplewise. With the
// micro average and top_k = 1, `num_classes` may be 0 (unknown); labels are then not validated.
inline Status multiclass_accuracy(const ConstTensorView& preds, const ConstTensorView& target,
                                  std::int64_t num_classes, const TensorView& value,
                                  const MulticlassOptions& options = {},
                                  const Launch& launch = {}) {
  syncfree_accuracy_options all = detail::label_options(SYNCFREE_MULTICLASS, options.labels);
  all.num_classes = num_classes;
  all.average = static_cast<std::int32_t>(options.average);
  all.top_k = options.top_k;
  return detail::accuracy(preds, target, value, options.labels, all, launch);
}

// Scores, probabilities or labels 0 and 1, (N, ...) both. Scores with a value outside [0, 1] are
// logits and go through a sigmoid first. `value` is float32: one element, or (N) samplewise.
inline Status binary_accuracy(const ConstTensorView& preds, const ConstTensorView& target,
                              const TensorView& value, const BinaryOptions& options = {},
                              const Launch& launch = {}) {
  syncfree_accuracy_options all = detail::label_options(SYNCFREE_BINARY, options.labels);
  all.threshold = options.threshold;
  return detail::accuracy(preds, target, value, options.labels, all, launch);
}

// Like binary, but both (N, L, ...) with L = `num_labels`. `value` as for multiclass.
inline Status multilabel_accuracy(const ConstTensorView& preds, const ConstTensorView& target,
                                  std::int64_t num_labels, const TensorView& value,
                                  const MultilabelOptions& options = {},
                                  const Launch& launch = {}) {
  syncfree_accuracy_options all = detail::label_options(SYNCFREE_MULTILABEL, options.labels);
  all.num_classes = num_labels;
  all.average = static_cast<std::int32_t>(options.average);
  all.threshold = options.threshold;
  return detail::accuracy(preds, target, value, options.labels, all, launch);
}

}  // namespace syncfree
