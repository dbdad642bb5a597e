// Checks of the shapes and types that accuracy's tensors have, with TorchMetrics' errors.
#pragma once

#include <cstdint>

#include "ops/accuracy_arguments.h"

namespace syncfree::ops {

// Element-wise predictions: both (N, ...), or (N, L, ...).
void check_elements(const Tensor& preds, const Tensor& target, std::int64_t least_dims,
                    bool samplewise);

// The number of classes, 0 if it is unknown, and the k of top-k accuracy.
void check_classes(std::int64_t num_classes, std::int64_t top_k, accuracy::Average average);

// Scores (N, C, ...) beside labels (N, ...). An unknown number of classes is 0.
void check_class_scores(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        bool samplewise);

// Labels, both (N, ...).
void check_class_labels(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        std::int64_t top_k, const AccuracyOptions& options);

// Advice for an error message if the target may be one-hot, else an empty string.
const char* one_hot_advice(const Tensor& target, std::int64_t num_classes);

}  // namespace syncfree::ops
