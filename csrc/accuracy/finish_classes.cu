// Counts and averages of so many classes that one last block would take longer than another launch.
#include "accuracy/tally.cuh"
#include "core/device_info.h"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) finish_classes(const __grid_constant__ CountJob job) {
  const bool ranks = job.tally == Tally::kRanks;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (int i = 0; i < job.k_count(); ++i) {
    ClassAverage<kThreads> average;
    average.add(job, i, 0, __ldcg(&job.grid->counted), first, step, [&](std::int64_t c) {
      if (!ranks) return take_class(job, job.class_totals, c);
      return class_at_k(job, i, c,
                        [&](std::int64_t cell) { return __ldcg(job.class_totals + cell); });
    });
    if (averages_classes(job)) {
      average.reduce();
      if (threadIdx.x == 0) {
        atomicAdd(&job.score_totals[i].sum, average.sum);
        atomicAdd(&job.score_totals[i].count, average.count);
      }
    }
  }
  if (ranks) clear_classes(job, job.class_totals, first, step);
  if (!is_last_block(&job.grid->ticket, gridDim.x)) return;
  __shared__ bool bad;
  if (threadIdx.x == 0) {
    job.grid->counted = 0;
    for (int i = 0; averages_classes(job) && i < job.k_count(); ++i) {
      ClassAverage<kThreads> average;
      average.sum = atomicExch(&job.score_totals[i].sum, 0ull);
      average.count = atomicExch(&job.score_totals[i].count, 0ull);
      job.values_at(i)[0] = average.mean(job);
    }
    bad = job.rule.report && publish_bad_labels(job);
  }
  __syncthreads();
  spoil_values(job, bad);
}

}  // namespace

cudaError_t launch_finish_classes(const CountJob& job, cudaStream_t stream) {
  const std::int64_t blocks = (job.classes + kThreads - 1) / kThreads;
  const std::int64_t most = 4 * current_device_info().multiprocessors;
  finish_classes<<<static_cast<unsigned int>(blocks < most ? blocks : most), kThreads, 0, stream>>>(
      job);
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
