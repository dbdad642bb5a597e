// Counts of elements that are judged one by one: binary, multilabel, and pooled class labels.
#include "accuracy/element_totals.cuh"
#include "accuracy/launch_job.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = kElementThreads;

// Short groups: a team of at most a warp's lanes for each.
template <class T>
__global__ void __launch_bounds__(kThreads, kElementBlocksPerMultiprocessor)
    judge_by_teams(const __grid_constant__ CountJob job) {
  wait_for_kernel_ahead();
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t team = divide(thread, job.lanes);
  const std::int64_t lane = thread - team * job.lanes;
  const std::int64_t turn = divide(team, job.group_count);
  const std::int64_t group = team - turn * job.group_count;
  const std::int64_t step = static_cast<std::int64_t>(job.blocks_per_group) * job.lanes;

  ElementJudge<T> judge(job, group);
  if (turn < job.blocks_per_group) {
    const Offsets base = job.groups(group);
    for (std::int64_t first = turn * job.lanes + lane; first < job.element_count;
         first += kElements * step)
      judge.judge(base, first, step);
  }
  const Counts counts = sum_over_team(judge.counts, job.lanes);
  if (lane == 0) add_to_totals(job, group, counts);
  close_block(job, judge.outside);
}

__device__ void add_to_shared(Counts& sum, const Counts& counts) {
  atomicAdd(&sum.probability_correct, counts.probability_correct);
  atomicAdd(&sum.logit_correct, counts.logit_correct);
  atomicAdd(&sum.probability_hits, counts.probability_hits);
  atomicAdd(&sum.logit_hits, counts.logit_hits);
  atomicAdd(&sum.valid, counts.valid);
  atomicAdd(&sum.positive, counts.positive);
}

// A block takes a few adjacent groups side by side, as labels lie in memory, or a single long one,
// whose elements its blocks take in turns. It adds to a total once, however many threads counted.
template <class T, bool kLine>
__global__ void __launch_bounds__(kThreads, column_blocks_per_multiprocessor(kLine))
    judge_by_columns(const __grid_constant__ CountJob job) {
  __shared__ Counts sums[kThreads];
  sums[threadIdx.x] = {};
  wait_for_kernel_ahead();
  __syncthreads();

  const auto columns = static_cast<unsigned int>(job.columns);
  const unsigned int rows = kThreads / columns;
  const unsigned int row = threadIdx.x / columns, column = threadIdx.x - row * columns;
  const std::int64_t turn = blockIdx.x / job.tiles;
  const std::int64_t first_group = (blockIdx.x - turn * job.tiles) * columns;
  const std::int64_t step = static_cast<std::int64_t>(job.blocks_per_group) * rows;

  ElementJudge<T> judge(job, first_group + column);
  if (row < rows && first_group + column < job.group_count) {
    const Offsets base = job.groups(first_group + column);
    const std::int64_t start = turn * rows + row;
    if constexpr (kLine)
      judge.judge_line(base, start, step);
    else
      for (std::int64_t first = start; first < job.element_count; first += kElements * step)
        judge.judge(base, first, step);
    if (columns > 1) add_to_shared(sums[column], judge.counts);
  }
  if (columns == 1) {
    const Counts counts = sum_over_team(judge.counts, kThreads);
    if (threadIdx.x == 0) add_to_totals(job, first_group, counts);
  } else {
    __syncthreads();
    if (threadIdx.x < columns && first_group + threadIdx.x < job.group_count)
      add_to_totals(job, first_group + threadIdx.x, sums[threadIdx.x]);
  }
  close_block(job, judge.outside);
}

__global__ void __launch_bounds__(kThreads) finish_elements(const __grid_constant__ CountJob job) {
  wait_for_kernel_ahead();
  const unsigned long long bad_labels = finish_values(job, blockIdx.x, gridDim.x);
  if (is_last_block(&job.grid->ticket, gridDim.x)) clear_grid_totals(job, bad_labels);
}

template <class T>
cudaError_t launch_for(const CountJob& job, cudaStream_t stream) {
  if (job.columns == 0) return launch_job(judge_by_teams<T>, kThreads, 0, stream, job);
  if constexpr (kScores<T>) {
    if (job.is_line) return launch_job(judge_by_columns<T, true>, kThreads, 0, stream, job);
  }
  return launch_job(judge_by_columns<T, false>, kThreads, 0, stream, job);
}

}  // namespace

cudaError_t launch_element_fractions(const CountJob& job, cudaStream_t stream) {
  const cudaError_t status = job.predicts_labels
                                 ? launch_for<Labels>(job, stream)
                                 : dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
                                     return launch_for<typename decltype(tag)::type>(job, stream);
                                   });
  if (status == cudaSuccess && job.finish_separately) {
    constexpr std::int64_t kMostBlocks = 65536;
    const std::int64_t work =
        job.averages_labels ? job.values : (job.group_count + kThreads - 1) / kThreads;
    const auto blocks = static_cast<unsigned int>(work < kMostBlocks ? work : kMostBlocks);
    return launch_early(finish_elements, blocks, kThreads, 0, stream, job);
  }
  return status;
}

}  // namespace syncfree::accuracy
