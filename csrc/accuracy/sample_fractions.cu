// Values or counts of so many samples that totals of each would take too much memory: a team of
// threads counts and finishes a sample by itself. Scores count as probabilities until one of them
// proves that they are logits; then a second launch counts them again, as on the CPU.
#include "accuracy/element_judge.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = kElementThreads;

// A thread's share of a group's positives: those that will be counted when the elements are judged.
template <class T>
__device__ unsigned int count_positives(const CountJob& job, std::int64_t group, int lane) {
  const Offsets base = job.groups(group);
  unsigned int positives = 0;
  for (std::int64_t i = lane; i < job.element_count; i += job.lanes) {
    const Offsets at = job.elements(i);
    const std::int64_t target =
        load_label(job.target, job.target_dtype, base.target + at.target, job.rule.truncate_target);
    if (target != 1 || job.rule.judge_target(target) != LabelState::kValid) continue;
    if constexpr (!kScores<T>) {
      const std::int64_t predicted =
          load_label(job.preds, job.preds_dtype, base.preds + at.preds, job.rule.truncate);
      if (job.rule.judge_prediction(predicted) == LabelState::kBad) continue;
    }
    ++positives;
  }
  return positives;
}

template <class T>
__device__ Counts count_elements(const CountJob& job, std::int64_t group, int lane, bool& outside) {
  ElementJudge<T> judge(job, group);
  const Offsets base = job.groups(group);
  for (std::int64_t first = lane; first < job.element_count; first += kElements * job.lanes)
    judge.judge(base, first, job.lanes);
  outside |= judge.outside;
  return judge.counts;
}

// Block-wide: the values of the block's samples, one for each team of `sample_lanes`. Within a team
// each `lanes` threads share a label, and they take labels in turns.
template <class T>
__device__ bool evaluate_samples(const CountJob& job, bool logits) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t sample = divide(thread, job.sample_lanes);
  const int place = static_cast<int>(thread - sample * job.sample_lanes);
  const int first_label = place / job.lanes, lane = place % job.lanes;
  const int turns = job.sample_lanes / job.lanes;
  const std::int64_t labels = job.averages_labels ? job.classes : 1;
  const bool weighted = job.average == Average::kWeighted;
  const auto group_of = [&](std::int64_t label) { return sample * labels + label; };
  const auto has = [&](std::int64_t label) { return sample < job.samples && label < labels; };

  unsigned long long total_weight = static_cast<unsigned long long>(labels);
  if (job.averages_labels && weighted) {
    unsigned long long positives = 0;
    for (std::int64_t label = first_label; has(label); label += turns)
      positives += count_positives<T>(job, group_of(label), lane);
    __shared__ unsigned long long of_block;
    total_weight = sum_over_team(positives, job.sample_lanes);
    if (job.sample_lanes == kThreads) {
      if (threadIdx.x == 0) of_block = total_weight;
      __syncthreads();
      total_weight = of_block;
    }
  }

  const int shift = fixed_point_shift(total_weight);
  bool outside = false;
  float value = 0.0f;
  unsigned long long sum = 0;
  // Threads without a label stay: the sums of the others need whole warps.
  for (std::int64_t round = 0; round < labels; round += turns) {
    const std::int64_t label = round + first_label;
    Counts counts;
    if (has(label)) counts = count_elements<T>(job, group_of(label), lane, outside);
    counts = sum_over_team(counts, job.lanes);
    const unsigned int correct = logits ? counts.logit_correct : counts.probability_correct;
    if (job.counts.wanted() && lane == 0 && has(label))
      hand_over_elements(job, group_of(label), logits ? counts.logit_hits : counts.probability_hits,
                         correct, counts.valid, counts.positive);
    if (!job.averages_labels)
      value = safe_fraction(correct, counts.valid);
    else if (lane == 0)
      sum += weighted_fraction(weighted ? counts.positive : 1, correct, counts.valid, shift);
  }
  if (job.averages_labels)
    value = mean_of_fractions(sum_over_team(sum, job.sample_lanes), total_weight, shift);
  if (place == 0 && sample < job.values) job.value[sample] = value;  // `values` may be 0
  return outside;
}

template <class T>
__global__ void __launch_bounds__(kThreads, kElementBlocksPerMultiprocessor)
    judge_samples(const __grid_constant__ CountJob job, bool logits) {
  const bool refuted = kScores<T> && __ldcg(&job.grid->outside) != 0;
  if (logits && !refuted) return;
  // Threads of a block may see the flag at different times.
  const bool in_vain = __syncthreads_or(!logits && refuted);
  const bool outside = !in_vain && evaluate_samples<T>(job, logits);
  if (kScores<T> && __syncthreads_or(outside) && threadIdx.x == 0)
    *static_cast<volatile unsigned int*>(&job.grid->outside) = 1;

  if (!is_last_block(&job.grid->ticket, gridDim.x)) return;
  __shared__ bool bad;
  if (threadIdx.x == 0) {
    bad = false;
    if (!logits && __ldcg(&job.grid->outside) != 0) {
      job.grid->bad_labels = 0;  // they are counted again
      job.grid->bad_first = 0;
    } else {
      bad = job.rule.report && publish_bad_labels(job);
      job.grid->outside = 0;
    }
  }
  __syncthreads();
  spoil_values(job, bad);
}

}  // namespace

cudaError_t launch_sample_fractions(const CountJob& job, cudaStream_t stream) {
  if (job.predicts_labels) {
    judge_samples<Labels><<<job.blocks, kThreads, 0, stream>>>(job, false);
  } else {
    dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      judge_samples<T><<<job.blocks, kThreads, 0, stream>>>(job, false);
      judge_samples<T><<<job.blocks, kThreads, 0, stream>>>(job, true);
    });
  }
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
