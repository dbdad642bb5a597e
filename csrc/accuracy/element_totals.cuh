// Totals of groups of elements in global memory, from the counts of blocks to results.
#pragma once

#include "accuracy/element_judge.cuh"

namespace syncfree::accuracy {

// Many blocks add to the totals of few groups at the same time. While a group's counts fit into 21
// bits, three share a word: two atomics instead of six, and two reads on the way to the result.
__device__ inline bool totals_are_packed(const CountJob& job) {
  return static_cast<unsigned long long>(job.element_count) <= kPackedMask;
}

__device__ inline void add_to_totals(const CountJob& job, std::int64_t group,
                                     const Counts& counts) {
  ElementTotals& totals = job.element_totals[group];
  const auto add = [](unsigned long long& total, unsigned long long count) {
    if (count != 0) atomicAdd(&total, count);
  };
  if (totals_are_packed(job)) {
    const auto packed = [](unsigned long long high, unsigned long long middle, unsigned int low) {
      return high << (2 * kPackedBits) | middle << kPackedBits | low;
    };
    add(totals.probability_correct,
        packed(counts.probability_correct, counts.probability_hits, counts.valid));
    add(totals.logit_correct, packed(counts.logit_correct, counts.logit_hits, counts.positive));
    return;
  }
  add(totals.probability_correct, counts.probability_correct);
  add(totals.logit_correct, counts.logit_correct);
  add(totals.probability_hits, counts.probability_hits);
  add(totals.logit_hits, counts.logit_hits);
  add(totals.valid, counts.valid);
  add(totals.positive, counts.positive);
}

__device__ inline ElementTotals read_totals(const CountJob& job, std::int64_t group) {
  const ElementTotals& totals = job.element_totals[group];
  const unsigned long long first = __ldcg(&totals.probability_correct);
  const unsigned long long second = __ldcg(&totals.logit_correct);
  if (totals_are_packed(job))
    return {first >> (2 * kPackedBits),
            second >> (2 * kPackedBits),
            first >> kPackedBits & kPackedMask,
            second >> kPackedBits & kPackedMask,
            first & kPackedMask,
            second & kPackedMask};
  return {first,
          second,
          __ldcg(&totals.probability_hits),
          __ldcg(&totals.logit_hits),
          __ldcg(&totals.valid),
          __ldcg(&totals.positive)};
}

// The counts of one group, under the reading of the scores that applies.
struct Outcome {
  unsigned long long correct;
  unsigned long long valid;
  unsigned long long positive;
};

// Takes the totals of a group and leaves zeros; hands the counts over where they are wanted.
__device__ inline Outcome settle(const CountJob& job, std::int64_t group, bool logits) {
  const ElementTotals totals = read_totals(job, group);
  job.element_totals[group] = {};
  const Outcome outcome = {logits ? totals.logit_correct : totals.probability_correct, totals.valid,
                           totals.positive};
  if (job.counts.wanted())
    hand_over_elements(job, group, logits ? totals.logit_hits : totals.probability_hits,
                       outcome.correct, outcome.valid, outcome.positive);
  return outcome;
}

// Block-wide: the average over the labels of one value, consecutive groups from `first` on.
__device__ inline float label_average(const CountJob& job, std::int64_t first, bool logits) {
  using Reduce = cub::BlockReduce<unsigned long long, kElementThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ unsigned long long total_weight;
  const bool weighted = job.average == Average::kWeighted;
  if (weighted) {
    unsigned long long positive = 0;
    for (std::int64_t l = threadIdx.x; l < job.classes; l += kElementThreads)
      positive += read_totals(job, first + l).positive;
    positive = Reduce(storage).Sum(positive);
    if (threadIdx.x == 0) total_weight = positive;
  } else if (threadIdx.x == 0) {
    total_weight = static_cast<unsigned long long>(job.classes);
  }
  __syncthreads();
  const int shift = fixed_point_shift(total_weight);
  unsigned long long sum = 0, valid = 0;
  for (std::int64_t l = threadIdx.x; l < job.classes; l += kElementThreads) {
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

// Block-wide, by the `turn`-th of `turns` blocks: turns totals into counts and values. Returns, in
// all threads, how many labels of the whole grid were bad.
__device__ inline unsigned long long finish_values(const CountJob& job, std::int64_t turn,
                                                   std::int64_t turns) {
  const unsigned long long bad_labels = job.rule.report ? __ldcg(&job.grid->bad_labels) : 0;
  const bool logits = __ldcg(&job.grid->outside) != 0;
  const bool bad = bad_labels != 0;
  if (job.averages_labels) {
    for (std::int64_t i = turn; i < job.values; i += turns) {
      const float mean = label_average(job, i * job.classes, logits);
      if (threadIdx.x == 0) job.value[i] = bad ? __int_as_float(0x7fffffff) : mean;
    }
  } else {
    const std::int64_t step = turns * kElementThreads;
    for (std::int64_t i = turn * kElementThreads + threadIdx.x; i < job.group_count; i += step) {
      const Outcome group = settle(job, i, logits);
      if (job.value != nullptr)
        job.value[i] = bad ? __int_as_float(0x7fffffff) : safe_fraction(group.correct, group.valid);
    }
  }
  return bad_labels;
}

// Called by the last block once all have read the grid's totals.
__device__ inline void clear_grid_totals(const CountJob& job, unsigned long long bad_labels) {
  if (threadIdx.x != 0) return;
  job.grid->outside = 0;
  if (bad_labels != 0) publish_bad_labels(job);
}

// Block-wide, by every block once its counts are in the totals. `outside`: whether a score of the
// thread lay outside [0, 1]. Each thread sets the flag by itself: a vote of the block (BAR.RED)
// ended in an illegal instruction on an H200 where bad labels were reported within the loop; the
// cause was not found.
__device__ inline void close_block(const CountJob& job, bool outside) {
  if (outside) *static_cast<volatile unsigned int*>(&job.grid->outside) = 1;
  if (job.finish_separately) return;
  if (gridDim.x > 1 && !is_last_block(&job.grid->ticket, gridDim.x)) return;
  __syncthreads();
  const unsigned long long bad_labels = finish_values(job, 0, 1);
  __syncthreads();
  clear_grid_totals(job, bad_labels);
}

}  // namespace syncfree::accuracy
