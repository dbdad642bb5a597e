// Fractions of right elements, each judged alone: binary, multilabel, and class labels pooled.
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kElements = 4;  // of a thread, in flight together
constexpr unsigned int kFullWarp = 0xffffffffu;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Scores of this type; or labels, whose type is told at run time.
struct Labels {};
template <class T>
inline constexpr bool kScores = !std::is_same_v<T, Labels>;

struct Counts {
  unsigned int probability_correct = 0;
  unsigned int logit_correct = 0;
  unsigned int valid = 0;
  unsigned int positive = 0;
};

__device__ Counts operator+(const Counts& a, const Counts& b) {
  return {a.probability_correct + b.probability_correct, a.logit_correct + b.logit_correct,
          a.valid + b.valid, a.positive + b.positive};
}

__device__ void add_to(ElementTotals& totals, const Counts& counts) {
  const auto add = [](unsigned long long& total, unsigned int count) {
    if (count != 0) atomicAdd(&total, static_cast<unsigned long long>(count));
  };
  add(totals.probability_correct, counts.probability_correct);
  add(totals.logit_correct, counts.logit_correct);
  add(totals.valid, counts.valid);
  add(totals.positive, counts.positive);
}

__device__ ElementTotals take(ElementTotals& totals) {
  const ElementTotals taken = {__ldcg(&totals.probability_correct), __ldcg(&totals.logit_correct),
                               __ldcg(&totals.valid), __ldcg(&totals.positive)};
  totals = {};
  return taken;
}

template <class T>
class ElementJudge {
 public:
  __device__ ElementJudge(const CountJob& job, std::int64_t group) : job_(job), group_(group) {}

  // Up to kElements elements `step` apart.
  __device__ void judge(const Offsets& base, std::int64_t first, std::int64_t step) {
    std::int64_t preds_at[kElements], target_at[kElements], target[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      // Past the end: the first element again, judged by nobody.
      const std::int64_t element = first + i * step;
      const Offsets at = job_.elements(element < job_.element_count ? element : first);
      preds_at[i] = base.preds + at.preds;
      target_at[i] = base.target + at.target;
    }
    if constexpr (kScores<T>) {
      T loaded[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        loaded[i] = static_cast<const T*>(job_.preds)[preds_at[i]];
      load_labels(job_.target, job_.target_dtype, target_at, job_.rule.truncate_target, target);
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        if (first + i * step < job_.element_count)
          judge_score(first + i * step, to<ComputeOf<T>>(loaded[i]), target[i]);
    } else {
      std::int64_t predicted[kElements];
      load_labels(job_.preds, job_.preds_dtype, preds_at, job_.rule.truncate, predicted);
      load_labels(job_.target, job_.target_dtype, target_at, job_.rule.truncate_target, target);
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        if (first + i * step < job_.element_count)
          judge_label(first + i * step, predicted[i], target[i]);
    }
  }

  Counts counts;
  bool outside = false;

 private:
  template <class Compute>
  __device__ void judge_score(std::int64_t element, Compute score, std::int64_t target) {
    outside |= is_outside_unit_interval(score);
    if (!admit(element, target)) return;
    const bool wanted = target == 1;
    ++counts.valid;
    counts.positive += wanted;
    counts.probability_correct +=
        (score > static_cast<Compute>(job_.threshold.probability)) == wanted;
    counts.logit_correct += (score >= static_cast<Compute>(job_.threshold.logit)) == wanted;
  }

  __device__ void judge_label(std::int64_t element, std::int64_t predicted, std::int64_t target) {
    if (!admit(element, target)) return;
    if (job_.rule.judge_prediction(predicted) == LabelState::kBad) {
      reject(element, ErrorKind::kPredsOutOfRange);
      return;
    }
    ++counts.valid;
    counts.positive += target == 1;
    counts.probability_correct += predicted == target;
  }

  __device__ bool admit(std::int64_t element, std::int64_t target) {
    const LabelState state = job_.rule.judge_target(target);
    if (state == LabelState::kBad) reject(element, ErrorKind::kTargetOutOfRange);
    return state == LabelState::kValid;
  }

  __device__ void reject(std::int64_t element, ErrorKind kind) {
    if (job_.rule.report) {
      report_bad_label(job_, group_, element, kind);
    } else if (job_.rule.bad_is_wrong) {
      ++counts.valid;
    }
  }

  const CountJob& job_;
  std::int64_t group_;
};

// Block-wide: the mean over the labels of one value, of consecutive totals that it takes.
__device__ float label_average(const CountJob& job, ElementTotals* totals, bool logits) {
  using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ unsigned long long total_weight;
  const bool weighted = job.average == Average::kWeighted;
  if (weighted) {
    unsigned long long positive = 0;
    for (std::int64_t l = threadIdx.x; l < job.classes; l += kThreads)
      positive += __ldcg(&totals[l].positive);
    positive = Reduce(storage).Sum(positive);
    if (threadIdx.x == 0) total_weight = positive;
  } else if (threadIdx.x == 0) {
    total_weight = static_cast<unsigned long long>(job.classes);
  }
  __syncthreads();
  const int shift = fixed_point_shift(total_weight);
  unsigned long long sum = 0;
  for (std::int64_t l = threadIdx.x; l < job.classes; l += kThreads) {
    const ElementTotals label = take(totals[l]);
    sum += weighted_fraction(weighted ? label.positive : 1,
                             logits ? label.logit_correct : label.probability_correct, label.valid,
                             shift);
  }
  sum = Reduce(storage).Sum(sum);
  const float mean = mean_of_fractions(sum, total_weight, shift);
  __syncthreads();
  return mean;
}

// The `turn`-th of `turns` blocks: totals become values.
__device__ void finish_values(const CountJob& job, std::int64_t turn, std::int64_t turns) {
  const bool bad = job.rule.report && __ldcg(&job.grid->bad_labels) != 0;
  const bool logits = __ldcg(&job.grid->outside) != 0;
  if (job.averages_labels) {
    for (std::int64_t i = turn; i < job.values; i += turns) {
      const float mean = label_average(job, job.element_totals + i * job.classes, logits);
      if (threadIdx.x == 0) job.value[i] = bad ? kNaN : mean;
    }
  } else {
    for (std::int64_t i = turn * kThreads + threadIdx.x; i < job.values; i += turns * kThreads) {
      const ElementTotals totals = take(job.element_totals[i]);
      const float fraction =
          safe_fraction(logits ? totals.logit_correct : totals.probability_correct, totals.valid);
      job.value[i] = bad ? kNaN : fraction;
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
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
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

  Counts counts = judge.counts;
  if (job.lanes == kThreads) {
    using Reduce = cub::BlockReduce<Counts, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    counts = Reduce(storage).Sum(counts);
  } else {
    for (int offset = job.lanes / 2; offset > 0; offset /= 2) {
      Counts other;
      other.probability_correct = __shfl_xor_sync(kFullWarp, counts.probability_correct, offset);
      other.logit_correct = __shfl_xor_sync(kFullWarp, counts.logit_correct, offset);
      other.valid = __shfl_xor_sync(kFullWarp, counts.valid, offset);
      other.positive = __shfl_xor_sync(kFullWarp, counts.positive, offset);
      counts = counts + other;
    }
  }
  if (job.shared_copies > 0) {
    Counts& sum = group_counts[group];
    atomicAdd(&sum.probability_correct, counts.probability_correct);
    atomicAdd(&sum.logit_correct, counts.logit_correct);
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
        job.averages_labels ? job.values : (job.values + kThreads - 1) / kThreads;
    const auto blocks = static_cast<unsigned int>(work < kMostBlocks ? work : kMostBlocks);
    finish_elements<<<blocks, kThreads, 0, stream>>>(job);
  }
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
