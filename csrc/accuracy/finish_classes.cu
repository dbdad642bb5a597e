// Finishes counts and averages in a launch of its own, where a last block would take longer: for
// many classes, or after many blocks.
#include <algorithm>

#include "accuracy/tally.cuh"
#include "core/device_info.h"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) finish_classes(const __grid_constant__ CountJob job) {
  wait_for_kernel_ahead();
  const bool several = gridDim.x > 1;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const unsigned long long counted = job.counts.wanted() ? __ldcg(&job.grid->counted) : 0;
  const unsigned long long bad_labels = job.rule.report ? __ldcg(&job.grid->bad_labels) : 0;
#pragma unroll 1
  for (int i = 0; i < job.k_count(); ++i) {
    ClassAverage<kThreads> average;
    const auto meet = [&](std::int64_t c, const ClassCounts& counts) {
      average.meet(job, i, 0, counted, c, counts);
    };
    if (job.tally == Tally::kRanks)
      meet_classes_at_k(
          job, i, first, step, [&](std::int64_t cell) { return __ldcg(job.class_totals + cell); },
          meet);
    else
      take_classes(job, job.class_totals, first, step, meet);
    if (!averages_classes(job)) continue;
    average.reduce();
    if (threadIdx.x != 0) continue;
    if (several)
      average.add_to(job.score_totals[i]);
    else
      job.values_at(i)[0] = average.mean(job);
  }
  if (job.tally == Tally::kRanks) clear_classes(job, job.class_totals, first, step);
  if (!several)
    __syncthreads();  // all have read the grid's totals
  else if (!is_last_block(&job.grid->ticket, gridDim.x))
    return;
  if (threadIdx.x == 0) {
    job.grid->counted = 0;
    for (int i = 0; several && averages_classes(job) && i < job.k_count(); ++i) {
      ClassAverage<kThreads> average;
      average.take_from(job.score_totals[i]);
      job.values_at(i)[0] = average.mean(job);
    }
  }
  if (bad_labels == 0) return;
  __syncthreads();  // values are written, and all have read the count
  if (threadIdx.x == 0) publish_bad_labels(job);
  spoil_values(job, true);
}

}  // namespace

cudaError_t launch_finish_classes(const CountJob& job, cudaStream_t stream) {
  const std::int64_t blocks = (job.slots + kThreads - 1) / kThreads;
  const std::int64_t most = std::int64_t{4} * current_device_info().multiprocessors;
  return launch_early(finish_classes, static_cast<unsigned int>(std::min(blocks, most)), kThreads,
                      0, stream, job);
}

}  // namespace syncfree::accuracy
