// Builds the problem from accuracy's arguments and runs it.
#include "ops/accuracy_arguments.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <limits>

#include "ops/accuracy_checks.h"
#include "ops/backend.h"
#if defined(SYNCFREE_OPS_CUDA)
#include "ops/cuda_error_record.h"
#endif

namespace syncfree::ops {
namespace {

using accuracy::Average;
using accuracy::Task;

// With `flat`, when there are more dimensions than a view holds, those behind the leading ones
// become one: without a copy if their strides allow it.
TensorView view_from(const Tensor& tensor, std::int64_t leading, bool flat,
                     std::optional<Tensor>& owner) {
  if (!flat) return view_of(tensor);
  owner = torch::stable::flatten(tensor, leading, -1);
  return view_of(*owner);
}

// In ascending order; each entry keeps its place in `top_k`.
accuracy::TopKList sorted_list(const std::vector<std::int64_t>& top_k) {
  if (top_k.empty() || top_k.size() > accuracy::TopKList::kMost)
    fail_value("Expected argument `top_k` to hold 1 to ", accuracy::TopKList::kMost,
               " integers, but got ", top_k.size(), ".");
  accuracy::TopKList list;
  for (const std::int64_t k : top_k) {
    if (k < 1 || k > std::numeric_limits<std::int32_t>::max())
      fail_value("Expected argument `top_k` to hold integers of 1 to `num_classes`, but got ", k,
                 ".");
    int at = list.count;
    for (; at > 0 && list.k[at - 1] > k; --at) {
      list.k[at] = list.k[at - 1];
      list.place[at] = list.place[at - 1];
    }
    list.k[at] = static_cast<int>(k);
    list.place[at] = static_cast<unsigned char>(list.count++);
  }
  return list;
}

#if defined(SYNCFREE_OPS_CUDA)

void execute(const accuracy::Problem& problem, const Tensor& on, const ErrorOrigin& origin) {
  const CudaContext context(on);
  ErrorSlot* error = problem.validate ? checked_error_slot(context, origin.slot) : nullptr;
  auto workspace = context.workspace(workspace_size(problem));
  workspace.check(launch(problem, workspace.memory(), error, context.stream()));
}

#else

void execute(const accuracy::Problem& problem, const Tensor&, const ErrorOrigin&) {
  ErrorRecord error;
  run(problem, &torch_parallel_for, problem.validate ? &error : nullptr);
  if (error.count > 0) throw std::runtime_error(error_text(error));
}

#endif

}  // namespace

AccuracyCall::AccuracyCall(Task task, const Tensor& preds, const Tensor& target,
                           std::int64_t options, std::int64_t ignore_index)
    : options_(options), preds_(preds), target_(target) {
  problem_.task = task;
  problem_.average = options_.average;
  problem_.samplewise = options_.samplewise;
  problem_.validate = options_.validate;
  problem_.has_ignore_index = options_.has_ignore_index;
  problem_.ignore_index = ignore_index;
  problem_.call = options_.origin.call;
}

void AccuracyCall::view(std::int64_t leading) {
  check_same_device(preds_, target_);
  check_dtypes(preds_, target_);
  device_ = device_of(preds_);
  const bool scores_of_classes = preds_.dim() != target_.dim();
  // Both or neither: a kernel walks the dimensions of both in step.
  const bool flat = std::max(preds_.dim(), target_.dim()) > kMaxRank;
  problem_.preds = view_from(preds_, leading + scores_of_classes, flat, flat_preds_);
  problem_.target = view_from(target_, leading, flat, flat_target_);
}

AccuracyCall AccuracyCall::binary(const Tensor& preds, const Tensor& target, double threshold,
                                  std::int64_t options, std::int64_t ignore_index) {
  AccuracyCall call(Task::kBinary, preds, target, options, ignore_index);
  check_elements(preds, target, 1, call.options_.samplewise);
  call.problem_.preds_are_labels = !is_floating(dtype_of(preds, "preds"));
  call.problem_.threshold = threshold;
  call.view(1);
  // TorchMetrics squeezes the result of a single sample.
  const std::int64_t samples = target.size(0);
  if (call.options_.samplewise && samples != 1) call.value_size_[call.value_rank_++] = samples;
  return call;
}

AccuracyCall AccuracyCall::multiclass(const Tensor& preds, const Tensor& target,
                                      std::int64_t num_classes, std::int64_t top_k,
                                      std::int64_t options, std::int64_t ignore_index) {
  AccuracyCall call(Task::kMulticlass, preds, target, options, ignore_index);
  check_classes(num_classes, top_k, call.options_.average);
  const bool scores = preds.dim() == target.dim() + 1;
  if (scores)
    check_class_scores(preds, target, num_classes, call.options_.samplewise);
  else
    check_class_labels(preds, target, num_classes, top_k, call.options_);
  call.problem_.preds_are_labels = !scores;
  call.problem_.num_classes = num_classes;
  call.problem_.top_k = static_cast<int>(top_k);
  call.view(1);
  if (call.options_.samplewise) call.value_size_[call.value_rank_++] = target.size(0);
  if (call.options_.average == Average::kNone) call.value_size_[call.value_rank_++] = num_classes;
  return call;
}

AccuracyCall AccuracyCall::multiclass_top_k(const Tensor& preds, const Tensor& target,
                                            std::int64_t num_classes,
                                            const std::vector<std::int64_t>& top_k,
                                            std::int64_t options, std::int64_t ignore_index) {
  const accuracy::TopKList list = sorted_list(top_k);
  if (preds.dim() == target.dim())
    fail_value(
        "Expected `preds` of shape (N, C, ...) with a score for each class where `top_k` is a "
        "list, but got labels of shape ",
        shape_text(preds), ".", one_hot_advice(target, num_classes));
  AccuracyCall call =
      multiclass(preds, target, num_classes, list.k[list.count - 1], options, ignore_index);
  call.problem_.top_ks = list;
  for (std::size_t i = call.value_rank_++; i > 0; --i)
    call.value_size_[i] = call.value_size_[i - 1];
  call.value_size_[0] = list.count;
  return call;
}

AccuracyCall AccuracyCall::multilabel(const Tensor& preds, const Tensor& target,
                                      std::int64_t num_labels, double threshold,
                                      std::int64_t options, std::int64_t ignore_index) {
  AccuracyCall call(Task::kMultilabel, preds, target, options, ignore_index);
  check_elements(preds, target, 2, call.options_.samplewise);
  if (target.size(1) != num_labels)
    fail_value(
        "Expected both `target.shape[1]` and `preds.shape[1]` to be equal to the number of "
        "labels but got ",
        target.size(1), " and expected ", num_labels, ".");
  call.problem_.preds_are_labels = !is_floating(dtype_of(preds, "preds"));
  call.problem_.num_classes = num_labels;
  call.problem_.threshold = threshold;
  call.view(2);
  // TorchMetrics squeezes the result of a single sample, and fails for the micro average.
  const std::int64_t samples = target.size(0);
  if (call.options_.samplewise && (samples != 1 || call.options_.average == Average::kMicro))
    call.value_size_[call.value_rank_++] = samples;
  if (call.options_.average == Average::kNone) call.value_size_[call.value_rank_++] = num_labels;
  return call;
}

Tensor AccuracyCall::make_value() {
  Tensor value = empty_like_device({value_size_, value_rank_}, DType::kFloat32, preds_);
  problem_.value = static_cast<float*>(value.mutable_data_ptr());
  return value;
}

// How many classes or labels have their own counts; TorchMetrics takes an unknown number as 1.
std::int64_t AccuracyCall::state_size() const {
  if (problem_.task == Task::kBinary) return 1;
  const bool pooled = problem_.task == Task::kMulticlass && problem_.average == Average::kMicro &&
                      problem_.top_k == 1 && !problem_.samplewise;
  return pooled ? 1 : std::max<std::int64_t>(problem_.num_classes, 1);
}

std::int64_t* AccuracyCall::state(const char* name, const Tensor& tensor, std::int64_t size,
                                  std::int64_t& stride) const {
  if (device_of(tensor) != device_) check_same_device(preds_, tensor, "preds", name);
  std::int64_t* strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  stride = tensor.dim() > 0 ? strides[0] : 1;
  // With a stride of 0 all classes would be counted in one element.
  const bool fits = tensor.dim() <= 1 && tensor.numel() == size && (stride != 0 || size == 1);
  if (!fits || tensor.scalar_type() != ScalarType::Long)
    fail_value("Expected state `", name, "` to be an int64 tensor of shape [", size, "], but got ",
               dtype_text(tensor), " of shape ", shape_text(tensor),
               ". Reset the metric, or make its states with torch.zeros.");
  return static_cast<std::int64_t*>(tensor.mutable_data_ptr());
}

void AccuracyCall::add_counts(const Tensor& tp, const Tensor& fp, const Tensor& tn,
                              const Tensor& fn, const Tensor& bad) {
  if (options_.samplewise)
    fail_value("Expected `multidim_average` to be `global` where counts are added to states.");
  accuracy::CountsView& counts = problem_.counts;
  const std::int64_t size = state_size();
  counts.data[accuracy::kTp] = state("tp", tp, size, counts.stride[accuracy::kTp]);
  counts.data[accuracy::kFp] = state("fp", fp, size, counts.stride[accuracy::kFp]);
  counts.data[accuracy::kTn] = state("tn", tn, size, counts.stride[accuracy::kTn]);
  counts.data[accuracy::kFn] = state("fn", fn, size, counts.stride[accuracy::kFn]);
  std::int64_t stride = 0;
  counts.bad = state("bad", bad, 1, stride);
}

std::array<Tensor, accuracy::kCountKinds> AccuracyCall::make_counts(const Tensor& bad) {
  if (!options_.samplewise)
    fail_value("Expected `multidim_average` to be `samplewise` for the counts of samples.");
  const std::int64_t sizes[2] = {target_.size(0), state_size()};
  const auto make = [&](int kind) {
    Tensor tensor =
        empty_like_device({sizes, problem_.task == Task::kBinary ? 1u : 2u}, DType::kInt64, preds_);
    problem_.counts.data[kind] = static_cast<std::int64_t*>(tensor.mutable_data_ptr());
    problem_.counts.stride[kind] = 1;
    return tensor;
  };
  std::int64_t stride = 0;
  problem_.counts.bad = state("bad", bad, 1, stride);
  return {make(accuracy::kTp), make(accuracy::kFp), make(accuracy::kTn), make(accuracy::kFn)};
}

void AccuracyCall::run() {
  execute(problem_, preds_, options_.origin);
}

}  // namespace syncfree::ops
