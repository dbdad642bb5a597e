// What counts as a label, and how the labels of a problem are judged, on the host and the device.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "accuracy/accuracy_math.h"

namespace syncfree::accuracy {

enum class LabelState : int { kValid, kIgnored, kBad };

// Marks stand for floating values that are no int64: kNoLabel for NaN and numbers out of range,
// kFractionLabel for fractions that are not truncated. No floating type has a whole number this
// close to -2^63, but an integer tensor may hold these two as labels.
inline constexpr std::int64_t kNoLabel = std::numeric_limits<std::int64_t>::min() + 1;
// As a prediction it counts as wrong, not as a bad label.
inline constexpr std::int64_t kFractionLabel = kNoLabel + 1;

SYNCFREE_HD bool is_mark(std::int64_t label) {
  return label == kNoLabel || label == kFractionLabel;
}

// A value as a class index. TorchMetrics truncates fractions except in the global micro average,
// where it compares the values themselves.
template <class T>
SYNCFREE_HD std::int64_t label_of(T value, bool truncate) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(value);
  } else {
    const double number = to<double>(value);
    if (!(number >= -0x1p63 && number < 0x1p63)) return kNoLabel;
    const std::int64_t whole = static_cast<std::int64_t>(number);
    return truncate || static_cast<double>(whole) == number ? whole : kFractionLabel;
  }
}

SYNCFREE_HD std::int64_t load_label(const void* labels, DType dtype, std::int64_t offset,
                                    bool truncate = true) {
  return dispatch_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return label_of(static_cast<const T*>(labels)[offset], truncate);
  });
}

// How the labels of one problem are judged. Ignored elements are never looked at further, not even
// for a bad prediction.
struct LabelRule {
  std::int64_t classes = 0;  // 2 for binary and multilabel; 0 for predicted labels of unknown range
  std::int64_t ignore_index = 0;
  bool has_ignore_index = false;
  bool truncate = true;           // fractions of predicted labels
  bool truncate_target = true;    // of targets; binary and multilabel ones are only 0 or 1
  bool target_has_marks = false;  // it is floating: a mark equals no label
  bool preds_have_marks = false;
  bool has_fractions = false;  // a predicted label may be kFractionLabel
  bool bad_is_wrong = false;   // a bad label is counted, as a wrong prediction, and not reported
  bool report = true;

  SYNCFREE_HD bool in_range(std::int64_t label) const {
    return classes == 0 ? !((target_has_marks || preds_have_marks) && is_mark(label))
                        : static_cast<std::uint64_t>(label) < static_cast<std::uint64_t>(classes);
  }

  SYNCFREE_HD LabelState judge_target(std::int64_t label) const {
    if (has_ignore_index && label == ignore_index) return LabelState::kIgnored;
    return in_range(label) ? LabelState::kValid : LabelState::kBad;
  }

  SYNCFREE_HD LabelState judge_prediction(std::int64_t label) const {
    const bool fraction = has_fractions && label == kFractionLabel;
    return fraction || in_range(label) ? LabelState::kValid : LabelState::kBad;
  }
};

inline LabelRule label_rule(const Problem& problem) {
  const bool multiclass = problem.task == Task::kMulticlass;
  const bool micro = multiclass && problem.average == Average::kMicro && is_pooled(problem);
  const bool floating_target = is_floating(problem.target.dtype);
  const bool floating_preds = problem.preds_are_labels && is_floating(problem.preds.dtype);
  LabelRule rule;
  rule.classes = multiclass ? class_count(problem) : 2;
  rule.ignore_index = problem.ignore_index;
  rule.has_ignore_index =
      problem.has_ignore_index && !(floating_target && is_mark(problem.ignore_index));
  rule.truncate = !micro || problem.samplewise;
  rule.truncate_target = multiclass && rule.truncate;
  rule.target_has_marks = floating_target;
  rule.preds_have_marks = floating_preds;
  rule.has_fractions = floating_preds && !rule.truncate;
  rule.report = problem.validate && !(multiclass && problem.num_classes == 0);
  rule.bad_is_wrong = micro && !rule.report;
  return rule;
}

// Orders the bad labels of a problem: by position in the target, row-major over its logical shape,
// and at one position the target before the prediction.
SYNCFREE_HD std::uint64_t error_order(std::int64_t index, ErrorKind kind) {
  return 2 * static_cast<std::uint64_t>(index) + (kind == ErrorKind::kPredsOutOfRange ? 1 : 0);
}
SYNCFREE_HD std::int64_t error_index(std::uint64_t order) {
  return static_cast<std::int64_t>(order / 2);
}
SYNCFREE_HD ErrorKind error_kind(std::uint64_t order) {
  return order % 2 ? ErrorKind::kPredsOutOfRange : ErrorKind::kTargetOutOfRange;
}

// `label` is the first of `count` bad ones.
SYNCFREE_HD ErrorRecord error_record(const LabelRule& rule, std::uint64_t order, std::int64_t label,
                                     std::int64_t count, std::int64_t call) {
  ErrorRecord record;
  record.kind = error_kind(order);
  record.first_index = error_index(order);
  record.first_value = label;
  record.count = count;
  record.call = call;
  record.classes = rule.classes;
  record.ignore_index = rule.ignore_index;
  record.has_ignore_index = rule.has_ignore_index;
  const bool has_marks =
      record.kind == ErrorKind::kPredsOutOfRange ? rule.preds_have_marks : rule.target_has_marks;
  record.is_integer = !(has_marks && is_mark(label));
  return record;
}

}  // namespace syncfree::accuracy
