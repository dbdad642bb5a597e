// Shared by the ops of accuracy: checks of their arguments, and the problem built from these.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "accuracy/accuracy.h"
#include "ops/accuracy_error.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// The arguments that hardly ever change, packed into one integer by
// python/syncfree/_ops/accuracy.py: torch takes 0.2 us to pass each scalar.
struct AccuracyOptions {
  accuracy::Average average;
  bool samplewise;
  bool validate;
  bool has_ignore_index;
  // Only for accuracy_from_counts, whose other arguments do not tell these.
  accuracy::Task task;
  bool top_one;
  ErrorOrigin origin;

  explicit AccuracyOptions(std::int64_t bits)
      : average(static_cast<accuracy::Average>(bits & 3)),
        samplewise((bits & 4) != 0),
        validate((bits & 8) != 0),
        has_ignore_index((bits & 16) != 0),
        task(static_cast<accuracy::Task>(bits >> 5 & 3)),
        top_one((bits & 128) == 0),
        origin(bits) {}
};

// One call: its checked arguments, and where its results go. Must not outlive its tensors.
class AccuracyCall {
 public:
  static AccuracyCall binary(const Tensor& preds, const Tensor& target, double threshold,
                             std::int64_t options, std::int64_t ignore_index);
  static AccuracyCall multiclass(const Tensor& preds, const Tensor& target,
                                 std::int64_t num_classes, std::int64_t top_k, std::int64_t options,
                                 std::int64_t ignore_index);
  // For several k in any order. The value has an additional first dimension, in the same order.
  static AccuracyCall multiclass_top_k(const Tensor& preds, const Tensor& target,
                                       std::int64_t num_classes,
                                       const std::vector<std::int64_t>& top_k, std::int64_t options,
                                       std::int64_t ignore_index);
  static AccuracyCall multilabel(const Tensor& preds, const Tensor& target, std::int64_t num_labels,
                                 double threshold, std::int64_t options, std::int64_t ignore_index);

  // Makes the tensor of the value, in the shape that TorchMetrics' functions return.
  Tensor make_value();

  // Has the kernels also count: the batch, added to the states of a metric, or each sample, in new
  // tensors. `bad` grows by the number of bad labels.
  void add_counts(const Tensor& tp, const Tensor& fp, const Tensor& tn, const Tensor& fn,
                  const Tensor& bad);
  std::array<Tensor, accuracy::kCountKinds> make_counts(const Tensor& bad);

  // Runs the kernels. On CUDA raises the errors that earlier calls of the metric left; on the CPU
  // those of this call.
  void run();

 private:
  AccuracyCall(accuracy::Task task, const Tensor& preds, const Tensor& target, std::int64_t options,
               std::int64_t ignore_index);

  void view(std::int64_t leading);
  std::int64_t state_size() const;
  std::int64_t* state(const char* name, const Tensor& tensor, std::int64_t size,
                      std::int64_t& stride) const;

  AccuracyOptions options_;
  const Tensor& preds_;
  const Tensor& target_;
  std::optional<Tensor> flat_preds_, flat_target_;
  Device device_;
  accuracy::Problem problem_;
  std::int64_t value_size_[3];
  std::size_t value_rank_ = 0;
};

}  // namespace syncfree::ops
