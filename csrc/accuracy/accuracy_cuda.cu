// Runs a plan: one launch, or two where a separate kernel finishes.
#include "accuracy/count_plan.h"

namespace syncfree::accuracy {
namespace {

template <class T>
T* carve(char*& memory, std::int64_t count) {
  T* carved = reinterpret_cast<T*>(memory);
  memory += static_cast<std::size_t>(count) * sizeof(T);
  return carved;
}

// For a problem without elements.
cudaError_t clear_results(const CountJob& job, cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  const auto clear = [&](void* memory, std::int64_t count, std::size_t size) {
    if (memory == nullptr || count == 0 || status != cudaSuccess) return;
    status = cudaMemsetAsync(memory, 0, static_cast<std::size_t>(count) * size, stream);
  };
  clear(job.value, job.values, sizeof(float));
  if (job.counts_are_added) return status;
  const std::int64_t places =
      job.tally == Tally::kClasses ? job.group_count * job.classes : job.group_count;
  for (std::int64_t* counts : job.counts.data) clear(counts, places, sizeof(std::int64_t));
  return status;
}

}  // namespace

WorkspaceSize workspace_size(const Problem& problem) {
  const Plan plan = make_plan(problem);
  WorkspaceSize size;
  size.zeroed = sizeof(GridTotals) +
                static_cast<std::size_t>(plan.score_totals) * sizeof(ScoreTotals) +
                static_cast<std::size_t>(plan.group_totals) * sizeof(GroupTotals) +
                static_cast<std::size_t>(plan.element_totals) * sizeof(ElementTotals) +
                static_cast<std::size_t>(plan.class_totals) * sizeof(unsigned long long);
  return size;
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, ErrorSlot* error,
                   cudaStream_t stream) {
  Plan plan = make_plan(problem);
  CountJob& job = plan.job;
  if (job.group_count == 0 || job.element_count == 0) return clear_results(job, stream);
  auto* memory = static_cast<char*>(workspace.zeroed);
  job.error = error;
  job.grid = carve<GridTotals>(memory, 1);
  job.score_totals = carve<ScoreTotals>(memory, plan.score_totals);
  job.group_totals = carve<GroupTotals>(memory, plan.group_totals);
  job.element_totals = carve<ElementTotals>(memory, plan.element_totals);
  job.class_totals = carve<unsigned long long>(memory, plan.class_totals);

  cudaError_t status = cudaSuccess;
  switch (plan.kernel) {
    case Kernel::kStagedRows:
      status = launch_staged_rows(job, stream);
      break;
    case Kernel::kRankRows:
      status = launch_rank_rows(job, stream);
      break;
    case Kernel::kArgmaxRows:
      status = launch_argmax_rows(job, stream);
      break;
    case Kernel::kClassStrided:
      status = launch_class_strided(job, stream);
      break;
    case Kernel::kLabelCounts:
      status = launch_label_counts(job, stream);
      break;
    case Kernel::kElementFractions:
      return launch_element_fractions(job, stream);
    case Kernel::kLineFraction:
      return launch_line_fraction(job, stream);
    case Kernel::kSampleFractions:
      return launch_sample_fractions(job, stream);
  }
  if (status == cudaSuccess && job.finish_separately) status = launch_finish_classes(job, stream);
  return status;
}

}  // namespace syncfree::accuracy
