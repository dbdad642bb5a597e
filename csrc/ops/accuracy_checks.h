// Checks of the shapes and types that accuracy's tensors have, with TorchMetrics' errors.
#pragma once

#include <cstdint>

#include "ops/accuracy_arguments.h"

namespace syncfree::ops {

// Element-wise predictions: both (N, ...), or (N, L, ...).
void check_elements(const Tensor& preds, const Tensor& target, std::int64_t least_dims,
                    bool samplewise);

// How many classes there are, 0 if that is unknown, and how many of them may be right.
void check_classes(std::int64_t num_classes, std::int64_t top_k, accuracy::Average average);

// Scores (N, C, ...) beside labels (N, ...). An unknown number of classes is 0.
void check_class_scores(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        bool samplewise);

// Both (N, ...).
void check_class_labels(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        std::int64_t top_k, const AccuracyOptions& options);

// A sentence for an error where the target may be one-hot, else nothing.
const char* one_hot_advice(const Tensor& target, std::int64_t num_classes);

}  // namespace syncfree::ops
