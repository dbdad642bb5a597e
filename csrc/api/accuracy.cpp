// syncfree_accuracy
#include "accuracy/accuracy.h"

#include <algorithm>
#include <limits>

#include "api/execution.h"
#include "core/error_text.h"

using namespace syncfree;
using namespace syncfree::api;

namespace {

using accuracy::Average;
using accuracy::Problem;
using accuracy::Task;

void check_options(const syncfree_accuracy_options& options) {
  check_choice("task", options.task, SYNCFREE_MULTILABEL);
  check_choice("average", options.average, SYNCFREE_NO_AVERAGE);
  const bool binary = options.task == SYNCFREE_BINARY;
  const bool multiclass = options.task == SYNCFREE_MULTICLASS;
  if (!multiclass && !(options.threshold >= 0 && options.threshold <= 1))
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `threshold` in the range [0, 1], but got ",
         options.threshold, ".");
  const bool may_be_unknown = multiclass && options.average == SYNCFREE_MICRO && options.top_k == 1;
  const std::int64_t least = may_be_unknown ? 0 : 1;
  if (!binary && !(options.num_classes >= least &&
                   options.num_classes <= std::numeric_limits<std::int32_t>::max()))
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `", multiclass ? "num_classes" : "num_labels",
         "` in the range [", least, ", 2147483647], but got ", options.num_classes, ".");
  const bool bounded = options.num_classes > 0;
  if (multiclass && (options.top_k < 1 || (bounded && options.top_k > options.num_classes)))
    fail(SYNCFREE_INVALID_ARGUMENT,
         "Expected `top_k` to be at least 1 and at most the number of "
         "classes, but got ",
         options.top_k, ".");
}

bool same_sizes(const TensorView& a, int a_from, const TensorView& b, int b_from) {
  return std::equal(a.size + a_from, a.size + a.rank, b.size + b_from, b.size + b.rank);
}

[[noreturn]] void fail_shapes(const Problem& problem, const char* expected) {
  fail(SYNCFREE_WRONG_SHAPE, "Expected ", expected, ", but got `preds` of shape ",
       shape_text(problem.preds), " and `target` of shape ", shape_text(problem.target), ".");
}

void check_class_shapes(const Problem& problem) {
  const TensorView &preds = problem.preds, &target = problem.target;
  if (target.rank < 1) fail_shapes(problem, "a target of at least one dimension");
  if (problem.preds_are_labels) {
    if (preds.rank != target.rank || !same_sizes(preds, 0, target, 0))
      fail_shapes(problem, "scores (N, C, ...) or labels (N, ...), with a target (N, ...)");
    if (problem.top_k != 1)
      fail_shapes(problem, "scores (N, C, ...) where `top_k` is larger than 1");
  } else {
    if (!is_floating(preds.dtype))
      fail(SYNCFREE_WRONG_DTYPE, "Expected scores (N, C, ...) to have a floating dtype.");
    if (preds.size[0] != target.size[0] || !same_sizes(preds, 2, target, 1))
      fail_shapes(problem, "scores (N, C, ...) with a target (N, ...)");
    if (preds.size[1] == 0 || (problem.num_classes != 0 && preds.size[1] != problem.num_classes))
      fail_shapes(problem, "scores (N, C, ...) with a C that is the number of classes");
  }
  if (problem.samplewise && target.rank < 2)
    fail_shapes(problem, "at least one dimension behind the samples (samplewise)");
}

void check_element_shapes(const Problem& problem) {
  const bool labels = problem.task == Task::kMultilabel;
  const int least = labels ? 2 : 1;
  if (problem.preds.rank != problem.target.rank || !same_sizes(problem.preds, 0, problem.target, 0))
    fail_shapes(problem, "`preds` and `target` of one shape");
  if (problem.target.rank < least + (problem.samplewise ? 1 : 0))
    fail_shapes(problem, problem.samplewise
                             ? "at least one dimension behind the samples and labels (samplewise)"
                             : (labels ? "(N, L, ...)" : "(N, ...)"));
  if (labels && problem.target.size[1] != problem.num_classes)
    fail_shapes(problem, "(N, L, ...) with an L that is the number of labels");
}

Problem make_problem(const syncfree_tensor* preds, const syncfree_tensor* target,
                     const syncfree_accuracy_options& options) {
  check_options(options);
  Problem problem;
  problem.task = static_cast<Task>(options.task);
  problem.average = static_cast<Average>(options.average);
  if (problem.task == Task::kBinary) problem.average = Average::kMicro;
  problem.samplewise = options.samplewise != 0;
  problem.preds = operand("preds", preds);
  problem.target = operand("target", target);
  check_same_device("target", *target, *preds);
  problem.num_classes = problem.task == Task::kBinary ? 0 : options.num_classes;
  problem.top_k = problem.task == Task::kMulticlass ? options.top_k : 1;
  problem.threshold = options.threshold;
  problem.has_ignore_index = options.has_ignore_index != 0;
  problem.ignore_index = options.ignore_index;
  problem.validate = options.validate != 0;
  if (problem.task == Task::kMulticlass) {
    problem.preds_are_labels = problem.preds.rank != problem.target.rank + 1;
    check_class_shapes(problem);
  } else {
    problem.preds_are_labels = !is_floating(problem.preds.dtype);
    check_element_shapes(problem);
  }
  return problem;
}

float* value_of(const Problem& problem, const syncfree_tensor* value, const syncfree_tensor& on) {
  std::int64_t sizes[2];
  int rank = 0;
  if (problem.samplewise) sizes[rank++] = problem.target.size[0];
  if (problem.average == Average::kNone) sizes[rank++] = problem.num_classes;
  const Result out = result("value", value, on, sizes, rank);
  if (out.dtype != DType::kFloat32)
    fail(SYNCFREE_WRONG_DTYPE, "Expected `value` of an accuracy to be float32, but got ",
         dtype_text(out.dtype), ".");
  return static_cast<float*>(out.data);
}

void run_on_cpu(const Problem& problem, const Execution& execution) {
  ErrorRecord error;
  run(problem, execution.parallel_for(), problem.validate ? &error : nullptr);
  if (error.count == 0) return;
  if (problem.counts.bad != nullptr) *problem.counts.bad += error.count;
  throw Failure(SYNCFREE_BAD_LABEL, error_text(error));
}

}  // namespace

syncfree_status_code syncfree_accuracy(const syncfree_tensor* preds, const syncfree_tensor* target,
                                       const syncfree_tensor* value, int64_t* bad_labels,
                                       const syncfree_accuracy_options* options,
                                       const syncfree_launch* launch) {
  return guarded([&] {
    Problem problem = make_problem(preds, target, required("options", options));
    problem.value = value_of(problem, value, *preds);
    problem.counts.bad = bad_labels;
    Execution execution(launch, *preds);
    if (!execution.prepare(0, execution.workspace_of(problem))) return;
#if defined(SYNCFREE_WITH_CUDA)
    if (execution.on_cuda())
      return execution.check_launch(
          syncfree::accuracy::launch(problem, execution.workspace(), nullptr, execution.stream()));
#endif
    run_on_cpu(problem, execution);
  });
}
