// Judges elements one by one, binary, multilabel, or class labels pooled, and sums up over threads.
#pragma once

#include "accuracy/tally.cuh"

namespace syncfree::accuracy {

inline constexpr int kElementThreads = 256;
inline constexpr int kElementBlocksPerMultiprocessor = 4;
inline constexpr int kElements = 4;  // of a thread, in flight together

// Scores of this type; or labels, whose type is told at run time.
struct Labels {};
template <class T>
inline constexpr bool kScores = !std::is_same_v<T, Labels>;

// As ElementTotals.
struct Counts {
  unsigned int probability_correct = 0;
  unsigned int logit_correct = 0;
  unsigned int probability_hits = 0;
  unsigned int logit_hits = 0;
  unsigned int valid = 0;
  unsigned int positive = 0;
};

__device__ inline Counts operator+(const Counts& a, const Counts& b) {
  return {a.probability_correct + b.probability_correct,
          a.logit_correct + b.logit_correct,
          a.probability_hits + b.probability_hits,
          a.logit_hits + b.logit_hits,
          a.valid + b.valid,
          a.positive + b.positive};
}

__device__ inline Counts shuffled(const Counts& counts, int offset) {
  const auto other = [offset](unsigned int count) {
    return __shfl_xor_sync(0xffffffffu, count, offset);
  };
  return {other(counts.probability_correct),
          other(counts.logit_correct),
          other(counts.probability_hits),
          other(counts.logit_hits),
          other(counts.valid),
          other(counts.positive)};
}
__device__ inline unsigned long long shuffled(unsigned long long count, int offset) {
  return __shfl_xor_sync(0xffffffffu, count, offset);
}

// The sum over a team of threads: a power of two of lanes, at most a warp, in all of them; or a
// whole block, valid in thread 0.
template <class Sum>
__device__ Sum sum_over_team(Sum sum, int lanes) {
  if (lanes == kElementThreads) {
    using Reduce = cub::BlockReduce<Sum, kElementThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __syncthreads();
    return Reduce(storage).Sum(sum);
  }
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum = sum + shuffled(sum, offset);
  return sum;
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
    const bool as_probability = score > static_cast<Compute>(job_.threshold.probability);
    const bool as_logit = score >= static_cast<Compute>(job_.threshold.logit);
    ++counts.valid;
    counts.positive += wanted;
    counts.probability_correct += as_probability == wanted;
    counts.logit_correct += as_logit == wanted;
    counts.probability_hits += as_probability && wanted;
    counts.logit_hits += as_logit && wanted;
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
    counts.probability_hits += predicted == target && target == 1;
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

}  // namespace syncfree::accuracy
