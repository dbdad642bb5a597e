// Counts and averages of so many classes that one last block would take longer than another launch.
#include "accuracy/tally.cuh"
#include "core/device_info.h"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) finish_classes(const __grid_constant__ CountJob job) {
  ClassAverage<kThreads> average;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  average.add(job, 0, __ldcg(&job.grid->counted), first,
              static_cast<std::int64_t>(gridDim.x) * kThreads,
              [&](std::int64_t c) { return take_class(job, job.class_totals, c); });
  if (averages_classes(job)) {
    average.reduce();
    if (threadIdx.x == 0) {
      atomicAdd(&job.grid->score_sum, average.sum);
      atomicAdd(&job.grid->score_count, average.count);
    }
  }
  if (!is_last_block(&job.grid->ticket, gridDim.x)) return;
  __shared__ bool bad;
  if (threadIdx.x == 0) {
    job.grid->counted = 0;
    if (averages_classes(job)) {
      average.sum = atomicExch(&job.grid->score_sum, 0ull);
      average.count = atomicExch(&job.grid->score_count, 0ull);
      job.value[0] = average.mean(job);
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
