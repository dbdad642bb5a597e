// Checks of the shapes and types that accuracy's tensors have.
#include "ops/accuracy_checks.h"

#include <algorithm>
#include <limits>

namespace syncfree::ops {
namespace {

bool same_sizes(const Tensor& preds, std::size_t preds_from, const Tensor& target,
                std::size_t target_from) {
  const auto a = preds.sizes(), b = target.sizes();
  return std::equal(a.begin() + preds_from, a.end(), b.begin() + target_from, b.end());
}

// For `preds` that have scores of classes where one score per label is expected.
const char* classes_advice(const Tensor& preds, const Tensor& target) {
  if (target.dim() < 1 || preds.dim() != target.dim() + 1 || preds.size(0) != target.size(0) ||
      !same_sizes(preds, 2, target, 1))
    return "";
  return preds.size(1) == 1 ? " Pass `preds.squeeze(1)`."
                            : " Scores of several classes are for `multiclass_accuracy`.";
}

constexpr const char* kOneHotAdvice = " If `target` is one-hot, pass `target.argmax(1)`.";

// Whether dimension 1 may hold the classes; 0 is an unknown number of classes.
bool has_classes(const Tensor& tensor, std::int64_t num_classes) {
  return num_classes != 0 && tensor.dim() >= 2 && tensor.size(1) == num_classes;
}

}  // namespace

const char* one_hot_advice(const Tensor& target, std::int64_t num_classes) {
  return has_classes(target, num_classes) ? kOneHotAdvice : "";
}

void check_elements(const Tensor& preds, const Tensor& target, std::int64_t least_dims,
                    bool samplewise) {
  if (!same_sizes(preds, 0, target, 0))
    fail_runtime("Predictions and targets are expected to have the same shape, but got ",
                 shape_text(preds), " and ", shape_text(target), ".",
                 classes_advice(preds, target));
  if (target.dim() < least_dims)
    fail_value("Expected `preds` and `target` to be at least ", least_dims, "D, but got shape ",
               shape_text(target), ".");
  if (samplewise && target.dim() <= least_dims)
    fail_value("Expected input to be at least ", least_dims + 1,
               "D when multidim_average is set to `samplewise`, but got shape ", shape_text(target),
               ".");
}

void check_classes(std::int64_t num_classes, std::int64_t top_k, accuracy::Average average) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (num_classes < 0 || num_classes > kMost)
    fail_value("Expected argument `num_classes` to be at most ", kMost, ", or 0 where it is ",
               "unknown, but got ", num_classes, ".");
  if (num_classes == 0 && (average != accuracy::Average::kMicro || top_k != 1))
    fail_value("Argument `num_classes` can only be `None` for `average='micro'` and `top_k=1`.");
  if (top_k < 1 || (num_classes != 0 && top_k > num_classes))
    fail_value("Expected argument `top_k` to be an integer of 1 to `num_classes`, but got ", top_k,
               " and ", num_classes, ".");
}

void check_class_scores(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        bool samplewise) {
  constexpr const char* kCase = "If `preds` have one dimension more than `target`, ";
  if (!is_floating(dtype_of(preds, "preds")))
    fail_value(kCase, "`preds` should be a float tensor, but got integers of shape ",
               shape_text(preds), ". Labels have the shape of `target`, ", shape_text(target), ".");
  if (target.dim() < 1) fail_value(kCase, "`target` should be at least 1D, but got a scalar.");
  if (num_classes != 0 && preds.size(1) != num_classes)
    fail_value(kCase, "`preds.shape[1]` should be equal to number of classes, but got shape ",
               shape_text(preds), " and num_classes=", num_classes, ".");
  if (preds.size(0) != target.size(0) || !same_sizes(preds, 2, target, 1))
    fail_value(
        kCase,
        "the shape of `preds` should be (N, C, ...), and the shape of `target` should be (N, "
        "...), but got ",
        shape_text(preds), " and ", shape_text(target), ".");
  if (preds.size(1) == 0)
    fail_value(kCase, "`preds` should have at least one class, but got shape ", shape_text(preds),
               ".");
  if (samplewise && preds.dim() < 3)
    fail_value(kCase,
               "the shape of `preds` should be at least 3D when multidim_average is set to "
               "`samplewise`, but got ",
               shape_text(preds), ".");
}

void check_class_labels(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        std::int64_t top_k, const AccuracyOptions& options) {
  if (preds.dim() != target.dim())
    fail_value(
        "Either `preds` and `target` both should have the (same) shape (N, ...), or `target` "
        "should be (N, ...) and `preds` should be (N, C, ...), but got ",
        shape_text(preds), " and ", shape_text(target), ".",
        target.dim() == preds.dim() + 1 && has_classes(target, num_classes) ? kOneHotAdvice : "");
  if (!same_sizes(preds, 0, target, 0))
    fail_value("The `preds` and `target` should have the same shape, got `preds` with shape=",
               shape_text(preds), " and `target` with shape=", shape_text(target), ".",
               has_classes(preds, num_classes) && target.size(1) == 1
                   ? " If `preds` are scores, pass `target.squeeze(1)`."
                   : "");
  // Taken as labels, scores would be truncated to whole numbers, and the value would mean nothing.
  if ((options.validate || top_k != 1) && has_classes(target, num_classes) &&
      is_floating(dtype_of(preds, "preds")))
    fail_value(
        "Expected `target` of shape (N, ...) beside scores of shape (N, C, ...), but both have "
        "shape ",
        shape_text(preds), " with num_classes=", num_classes, ".", kOneHotAdvice,
        " If `preds` are labels, convert them with `.long()`.");
  if (target.dim() < 1)
    fail_value("Expected `preds` and `target` to be at least 1D, but got scalars.");
  if (options.samplewise && preds.dim() < 2)
    fail_value(
        "When `preds` and `target` have the same shape, the shape of `preds` should be at least 2D "
        "when multidim_average is set to `samplewise`, but got ",
        shape_text(preds), ".");
  if (top_k != 1)
    fail_value(
        "Expected `preds` of shape (N, C, ...) with a score for each class where `top_k` is larger "
        "than 1, but got labels of shape ",
        shape_text(preds), " and top_k=", top_k, ".");
}

}  // namespace syncfree::ops
