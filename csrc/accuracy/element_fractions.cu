// Counts of elements that are judged alone: binary, multilabel, and class labels pooled.
#include "accuracy/element_judge.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = kElementThreads;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

__device__ void add_to(ElementTotals& totals, const Counts& counts) {
  const auto add = [](unsigned long long& total, unsigned int count) {
    if (count != 0) atomicAdd(&total, static_cast<unsigned long long>(count));
  };
  add(totals.probability_correct, counts.probability_correct);
  add(totals.logit_correct, counts.logit_correct);
  add(totals.probability_hits, counts.probability_hits);
  add(totals.logit_hits, counts.logit_hits);
  add(totals.valid, counts.valid);
  add(totals.positive, counts.positive);
}

// Leaves zeros.
__device__ ElementTotals take(ElementTotals& totals) {
  const ElementTotals taken = {__ldcg(&totals.probability_correct),
                               __ldcg(&totals.logit_correct),
                               __ldcg(&totals.probability_hits),
                               __ldcg(&totals.logit_hits),
                               __ldcg(&totals.valid),
                               __ldcg(&totals.positive)};
  totals = {};
  return taken;
}

// Of one group, handed over where counts are wanted.
struct Outcome {
  unsigned long long correct;
  unsigned long long valid;
  unsigned long long positive;
};

__device__ Outcome settle(const CountJob& job, std::int64_t group, bool logits) {
  const ElementTotals totals = take(job.element_totals[group]);
  const Outcome outcome = {logits ? totals.logit_correct : totals.probability_correct, totals.valid,
                           totals.positive};
  if (job.counts.wanted())
    hand_over_elements(job, group, logits ? totals.logit_hits : totals.probability_hits,
                       outcome.correct, outcome.valid, outcome.positive);
  return outcome;
}

// Block-wide: the average over the labels of one value, consecutive groups from `first` on.
__device__ float label_average(const CountJob& job, std::int64_t first, bool logits) {
  using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ unsigned long long total_weight;
  const bool weighted = job.average == Average::kWeighted;
  if (weighted) {
    unsigned long long positive = 0;
    for (std::int64_t l = threadIdx.x; l < job.classes; l += kThreads)
      positive += __ldcg(&job.element_totals[first + l].positive);
    positive = Reduce(storage).Sum(positive);
    if (threadIdx.x == 0) total_weight = positive;
  } else if (threadIdx.x == 0) {
    total_weight = static_cast<unsigned long long>(job.classes);
  }
  __syncthreads();
  const int shift = fixed_point_shift(total_weight);
  unsigned long long sum = 0, valid = 0;
  for (std::int64_t l = threadIdx.x; l < job.classes; l += kThreads) {
    const Outcome label = settle(job, first + l, logits);
    if (job.average == Average::kMicro) {
      sum += label.correct;
      valid += label.valid;
    } else {
      sum += weighted_fraction(weighted ? label.positive : 1, label.correct, label.valid, shift);
    }
  }
  sum = Reduce(storage).Sum(sum);
  __syncthreads();
  if (job.average != Average::kMicro) return mean_of_fractions(sum, total_weight, shift);
  valid = Reduce(storage).Sum(valid);
  __syncthreads();
  return safe_fraction(sum, valid);
}

// The `turn`-th of `turns` blocks: totals become counts and values.
__device__ void finish_values(const CountJob& job, std::int64_t turn, std::int64_t turns) {
  const bool bad = job.rule.report && __ldcg(&job.grid->bad_labels) != 0;
  const bool logits = __ldcg(&job.grid->outside) != 0;
  if (job.averages_labels) {
    for (std::int64_t i = turn; i < job.values; i += turns) {
      const float mean = label_average(job, i * job.classes, logits);
      if (threadIdx.x == 0) job.value[i] = bad ? kNaN : mean;
    }
  } else {
    const std::int64_t step = turns * kThreads;
    for (std::int64_t i = turn * kThreads + threadIdx.x; i < job.group_count; i += step) {
      const Outcome group = settle(job, i, logits);
      if (job.value != nullptr)
        job.value[i] = bad ? kNaN : safe_fraction(group.correct, group.valid);
    }
  }
}

// The last block, once all have read the grid's totals.
__device__ void clear_grid_totals(const CountJob& job) {
  if (threadIdx.x != 0) return;
  job.grid->outside = 0;
  if (job.rule.report) publish_bad_labels(job);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kElementBlocksPerMultiprocessor)
    judge_elements(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int shared[];
  auto* group_counts = reinterpret_cast<Counts*>(shared);
  if (job.shared_copies > 0) {
    for (std::int64_t i = threadIdx.x; i < job.group_count; i += kThreads) group_counts[i] = {};
    __syncthreads();
  }

  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t team = quotient(thread, job.lanes);
  const std::int64_t lane = thread - team * job.lanes;
  // Neighbouring teams have neighbouring groups, which is how labels lie in memory.
  const std::int64_t turn = quotient(team, job.group_count);
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
  if (job.shared_copies > 0) {
    Counts& sum = group_counts[group];
    atomicAdd(&sum.probability_correct, counts.probability_correct);
    atomicAdd(&sum.logit_correct, counts.logit_correct);
    atomicAdd(&sum.probability_hits, counts.probability_hits);
    atomicAdd(&sum.logit_hits, counts.logit_hits);
    atomicAdd(&sum.valid, counts.valid);
    atomicAdd(&sum.positive, counts.positive);
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < job.group_count; i += kThreads)
      add_to(job.element_totals[i], group_counts[i]);
  } else if (lane == 0) {
    add_to(job.element_totals[group], counts);
  }
  if (__syncthreads_or(judge.outside) && threadIdx.x == 0)
    *static_cast<volatile unsigned int*>(&job.grid->outside) = 1;

  if (job.finish_separately) return;
  if (gridDim.x > 1 && !is_last_block(&job.grid->ticket, gridDim.x)) return;
  __syncthreads();
  finish_values(job, 0, 1);
  __syncthreads();
  clear_grid_totals(job);
}

__global__ void __launch_bounds__(kThreads) finish_elements(const __grid_constant__ CountJob job) {
  finish_values(job, blockIdx.x, gridDim.x);
  if (is_last_block(&job.grid->ticket, gridDim.x)) clear_grid_totals(job);
}

}  // namespace

cudaError_t launch_element_fractions(const CountJob& job, cudaStream_t stream) {
  const std::size_t shared =
      job.shared_copies > 0 ? sizeof(Counts) * static_cast<std::size_t>(job.group_count) : 0;
  const auto launch = [&](auto tag) {
    using T = typename decltype(tag)::type;
    judge_elements<T><<<job.blocks, kThreads, shared, stream>>>(job);
  };
  if (job.predicts_labels) {
    launch(TypeTag<Labels>{});
  } else {
    dispatch_score_dtype(job.preds_dtype, launch);
  }
  if (job.finish_separately) {
    constexpr std::int64_t kMostBlocks = 65536;
    const std::int64_t work =
        job.averages_labels ? job.values : (job.group_count + kThreads - 1) / kThreads;
    const auto blocks = static_cast<unsigned int>(work < kMostBlocks ? work : kMostBlocks);
    finish_elements<<<blocks, kThreads, 0, stream>>>(job);
  }
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
