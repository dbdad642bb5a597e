// torch.ops.syncfree.binary_accuracy, multiclass_accuracy and multilabel_accuracy
#include "accuracy/accuracy.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <limits>

#include "accuracy/accuracy_math.h"
#include "ops/backend.h"
#if defined(SYNCFREE_OPS_CUDA)
#include "ops/cuda_error_record.h"
#endif

namespace syncfree::ops {
namespace {

using accuracy::Average;
using accuracy::Problem;
using accuracy::Task;

// Trailing dimensions become one where there are more than a view holds: without a copy if their
// strides allow it.
TensorView view_from(const Tensor& tensor, std::int64_t leading, bool flat, Tensor& owner) {
  if (!flat) return view_of(tensor);
  owner = torch::stable::flatten(tensor, leading, -1);
  return view_of(owner);
}

bool same_sizes(const Tensor& preds, std::size_t preds_from, const Tensor& target,
                std::size_t target_from) {
  const auto a = preds.sizes(), b = target.sizes();
  return std::equal(a.begin() + preds_from, a.end(), b.begin() + target_from, b.end());
}

// Element-wise predictions: both (N, ...), or (N, L, ...).
void check_elements(const Tensor& preds, const Tensor& target, std::int64_t least_dims,
                    bool samplewise) {
  if (!same_sizes(preds, 0, target, 0)) check_same_shape(preds, target);
  if (target.dim() < least_dims)
    fail_value("Expected `preds` and `target` to be at least ", least_dims, "D, but got shape ",
               shape_text(target), ".");
  if (samplewise && target.dim() <= least_dims)
    fail_value("Expected input to be at least ", least_dims + 1,
               "D when multidim_average is set to `samplewise`, but got shape ", shape_text(target),
               ".");
}

void check_class_scores(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                        bool samplewise) {
  constexpr const char* kCase = "If `preds` have one dimension more than `target`, ";
  if (!is_floating(dtype_of(preds)))
    fail_value(kCase, "`preds` should be a float tensor, but got ",
               torch::headeronly::toString(preds.scalar_type()), ".");
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

void check_class_labels(const Tensor& preds, const Tensor& target, std::int64_t top_k,
                        bool samplewise) {
  if (preds.dim() != target.dim())
    fail_value(
        "Either `preds` and `target` both should have the (same) shape (N, ...), or `target` "
        "should "
        "be (N, ...) and `preds` should be (N, C, ...), but got ",
        shape_text(preds), " and ", shape_text(target), ".");
  if (!same_sizes(preds, 0, target, 0))
    fail_value("The `preds` and `target` should have the same shape, got `preds` with shape=",
               shape_text(preds), " and `target` with shape=", shape_text(target), ".");
  if (target.dim() < 1)
    fail_value("Expected `preds` and `target` to be at least 1D, but got scalars.");
  if (samplewise && preds.dim() < 2)
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

// The arguments that hardly ever change, in one integer (python/syncfree/_ops/accuracy.py packs
// it): torch takes 0.2 us to hand over each scalar.
struct Options {
  Average average;
  bool samplewise;
  bool validate;
  bool has_ignore_index;

  explicit Options(std::int64_t bits)
      : average(static_cast<Average>(bits & 3)),
        samplewise((bits & 4) != 0),
        validate((bits & 8) != 0),
        has_ignore_index((bits & 16) != 0) {}
};

Problem make_problem(Task task, const Options& options, std::int64_t ignore_index) {
  Problem problem;
  problem.task = task;
  problem.average = options.average;
  problem.samplewise = options.samplewise;
  problem.validate = options.validate;
  problem.has_ignore_index = options.has_ignore_index;
  problem.ignore_index = ignore_index;
  return problem;
}

#if defined(SYNCFREE_OPS_CUDA)

void count(const Problem& problem, const Tensor& on) {
  const CudaContext context(on);
  const auto workspace = context.workspace(workspace_size(problem));
  ErrorRecord* error = problem.validate ? device_error_record(context.device()) : nullptr;
  check_cuda(launch(problem, workspace.memory, error, context.stream()));
}

#else

[[noreturn]] void fail_for(const ErrorRecord& error, const Problem& problem) {
  const char* name =
      error.kind == static_cast<std::int64_t>(ErrorKind::kPredsOutOfRange) ? "preds" : "target";
  std::ostringstream allowed;
  if (problem.task == Task::kMulticlass)
    allowed << "labels in the range [0, " << problem.num_classes - 1 << ']';
  else
    allowed << "the following values [0, 1]";
  if (problem.has_ignore_index) allowed << " or ignore_index=" << problem.ignore_index;
  // Float tensors can hold what is no class at all.
  const bool whole = error.first_value > accuracy::kFractionLabel;
  const std::string value = whole ? std::to_string(error.first_value) : "no whole number";
  fail<std::runtime_error>("Detected the following values in `", name, "`: ", value,
                           " at flat index ", error.first_index, ", the first of ", error.count,
                           ", but expected only ", allowed.str(), ".");
}

void count(const Problem& problem, const Tensor&) {
  ErrorRecord error{};
  run(problem, &torch_parallel_for, problem.validate ? &error : nullptr);
  if (error.count > 0) fail_for(error, problem);
}

#endif

Tensor evaluate(Problem& problem, const Tensor& preds, const Tensor& target,
                std::span<const std::int64_t> sizes) {
  check_same_device(preds, target);
  const bool scores_of_classes = preds.dim() != target.dim();
  const std::int64_t leading = problem.task == Task::kMultilabel ? 2 : 1;
  Tensor preds_owner, target_owner;
  // Both or neither: a kernel walks their dimensions side by side.
  const bool flat = std::max(preds.dim(), target.dim()) > kMaxRank;
  problem.preds = view_from(preds, leading + scores_of_classes, flat, preds_owner);
  problem.target = view_from(target, leading, flat, target_owner);
  Tensor value = empty_like_device(sizes, DType::kFloat32, preds);
  problem.value = static_cast<float*>(value.mutable_data_ptr());
  if (value.numel() > 0) count(problem, preds);
  return value;
}

Tensor binary_accuracy(const Tensor& preds, const Tensor& target, double threshold,
                       std::int64_t option_bits, std::int64_t ignore_index) {
  const Options options(option_bits);
  check_elements(preds, target, 1, options.samplewise);
  Problem problem = make_problem(Task::kBinary, options, ignore_index);
  problem.preds_are_labels = !is_floating(dtype_of(preds));
  problem.threshold = threshold;
  const std::int64_t samples = target.size(0);
  // TorchMetrics squeezes the result of a single sample.
  return evaluate(problem, preds, target, {&samples, options.samplewise && samples != 1 ? 1u : 0u});
}

Tensor multiclass_accuracy(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                           std::int64_t top_k, std::int64_t option_bits,
                           std::int64_t ignore_index) {
  const Options options(option_bits);
  if (num_classes > std::numeric_limits<std::int32_t>::max())
    fail_value("Expected argument `num_classes` to be at most 2147483647, but got ", num_classes,
               ".");
  const bool scores = preds.dim() == target.dim() + 1;
  if (scores)
    check_class_scores(preds, target, num_classes, options.samplewise);
  else
    check_class_labels(preds, target, top_k, options.samplewise);
  Problem problem = make_problem(Task::kMulticlass, options, ignore_index);
  problem.preds_are_labels = !scores;
  problem.num_classes = num_classes;
  problem.top_k = static_cast<int>(top_k);
  std::int64_t sizes[2];
  std::size_t rank = 0;
  if (options.samplewise) sizes[rank++] = target.size(0);
  if (options.average == Average::kNone) sizes[rank++] = num_classes;
  return evaluate(problem, preds, target, {sizes, rank});
}

Tensor multilabel_accuracy(const Tensor& preds, const Tensor& target, std::int64_t num_labels,
                           double threshold, std::int64_t option_bits, std::int64_t ignore_index) {
  const Options options(option_bits);
  check_elements(preds, target, 2, options.samplewise);
  if (target.size(1) != num_labels)
    fail_value(
        "Expected both `target.shape[1]` and `preds.shape[1]` to be equal to the number of "
        "labels but got ",
        target.size(1), " and expected ", num_labels, ".");
  Problem problem = make_problem(Task::kMultilabel, options, ignore_index);
  problem.preds_are_labels = !is_floating(dtype_of(preds));
  problem.num_classes = num_labels;
  problem.threshold = threshold;
  // TorchMetrics squeezes the result of a single sample, and fails for the micro average.
  std::int64_t sizes[2];
  std::size_t rank = 0;
  if (options.samplewise && (target.size(0) != 1 || options.average == Average::kMicro))
    sizes[rank++] = target.size(0);
  if (options.average == Average::kNone) sizes[rank++] = num_labels;
  return evaluate(problem, preds, target, {sizes, rank});
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
      "multilabel_accuracy(Tensor preds, Tensor target, int num_labels, float threshold, "
      "int options, int ignore_index) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("binary_accuracy", TORCH_BOX(&binary_accuracy));
  library.impl("multiclass_accuracy", TORCH_BOX(&multiclass_accuracy));
  library.impl("multilabel_accuracy", TORCH_BOX(&multilabel_accuracy));
}

}  // namespace syncfree::ops
