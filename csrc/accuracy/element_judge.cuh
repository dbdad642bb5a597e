// Judges elements one by one, binary, multilabel or pooled class labels, and sums up over threads.
// A line is scores whose elements lie one stride apart.
#pragma once

#include "accuracy/tally.cuh"

namespace syncfree::accuracy {

// What an ElementJudge is made for: the type of scores, or Labels, whose type is a run-time tag.
struct Labels {};
template <class T>
inline constexpr bool kScores = !std::is_same_v<T, Labels>;

// The counts of ElementTotals for one thread or block.
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

// The sum over a team of threads: a power of two up to a warp, valid in all of them; or a whole
// block, valid in thread 0.
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

// Reports elements `step` apart, by a bit for each bad one.
__device__ __noinline__ inline void report_bad_labels(const CountJob& job, std::int64_t group,
                                                      std::int64_t first, std::int64_t step,
                                                      unsigned int bad_targets,
                                                      unsigned int bad_preds) {
#pragma unroll 1
  for (int i = 0; (bad_targets | bad_preds) >> i != 0; ++i) {
    const std::int64_t element = first + i * step;
    if (bad_targets >> i & 1) report_bad_label(job, group, element, ErrorKind::kTargetOutOfRange);
    if (bad_preds >> i & 1) report_bad_label(job, group, element, ErrorKind::kPredsOutOfRange);
  }
}

// Reads the targets of a line again and reports the bad ones. Called after the loop over the line:
// within the loop, few registers would survive a call.
__device__ __forceinline__ void report_bad_line(const CountJob& job, std::int64_t group,
                                                std::int64_t base, std::int64_t first,
                                                std::int64_t step) {
#pragma unroll 1
  for (; first < job.element_count; first += step) {
    const std::int64_t at = base + first * job.elements.target_stride[0];
    const std::int64_t label =
        load_label(job.target, job.target_dtype, at, job.rule.truncate_target);
    if (job.rule.judge_target(label) == LabelState::kBad)
      report_bad_label(job, group, first, ErrorKind::kTargetOutOfRange);
  }
}

// A batch of scores is counted in one word of six fields, by one multiplication per score: how many
// are valid, positive by either bound, and how many of each of these have a positive target.
inline constexpr int kBatchFieldBits = 5;
static_assert(kLineElements < 1 << kBatchFieldBits);

template <class Compute>
struct ScoreBounds {
  Compute probability, logit;

  __device__ explicit ScoreBounds(const ScoreThreshold& threshold)
      : probability(static_cast<Compute>(threshold.probability)),
        logit(static_cast<Compute>(threshold.logit)) {}

  // Ones in the field of valid scores and in those of the bounds by which the score is positive.
  __device__ unsigned int places(Compute score) const {
    return 1u | (score > probability ? 1u << (2 * kBatchFieldBits) : 0u) |
           (score >= logit ? 1u << (4 * kBatchFieldBits) : 0u);
  }
};

__device__ inline void add_batch(Counts& counts, unsigned int batch) {
  const auto field = [batch](int i) {
    return batch >> (i * kBatchFieldBits) & ((1u << kBatchFieldBits) - 1);
  };
  const unsigned int negative = field(0) - field(1);
  counts.valid += field(0);
  counts.positive += field(1);
  counts.probability_correct += negative - field(2) + 2 * field(3);
  counts.probability_hits += field(3);
  counts.logit_correct += negative - field(4) + 2 * field(5);
  counts.logit_hits += field(5);
}

template <class T>
class ElementJudge {
 public:
  __device__ ElementJudge(const CountJob& job, std::int64_t group) : job_(job), group_(group) {}

  // Up to kElements elements `step` apart.
  __device__ void judge(const Offsets& base, std::int64_t first, std::int64_t step) {
    std::int64_t preds_at[kElements], target_at[kElements], target[kElements];
    locate(base, first, step, preds_at, target_at);
    unsigned int bad_targets = 0, bad_preds = 0;  // a bit for each element
    if constexpr (kScores<T>) {
      T loaded[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        loaded[i] = static_cast<const T*>(job_.preds)[preds_at[i]];
      load_labels(job_.target, job_.target_dtype, target_at, job_.rule.truncate_target, target);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const LabelState state = state_of(first + i * step, target[i]);
        bad_targets |= (state == LabelState::kBad) << i;
        judge_score(to<ComputeOf<T>>(loaded[i]), target[i] == 1, state == LabelState::kValid);
      }
    } else {
      std::int64_t predicted[kElements];
      load_labels(job_.preds, job_.preds_dtype, preds_at, job_.rule.truncate, predicted);
      load_labels(job_.target, job_.target_dtype, target_at, job_.rule.truncate_target, target);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const LabelState state = state_of(first + i * step, target[i]);
        bad_targets |= (state == LabelState::kBad) << i;
        if (state != LabelState::kValid) continue;
        if (job_.rule.judge_prediction(predicted[i]) == LabelState::kBad)
          bad_preds |= 1u << i;
        else
          judge_label(predicted[i], target[i]);
      }
    }
    if ((bad_targets | bad_preds) != 0) reject(first, step, bad_targets, bad_preds);
  }

  // Judges scores from `first` on, `step` elements apart, in a group of one dimension. The branch
  // on the target's type stands outside the loop over full batches, and so does the report of bad
  // labels: that leaves registers for more loads in flight. The rest makes one more batch.
  __device__ void judge_line(const Offsets& base, std::int64_t first, std::int64_t step) {
    const std::int64_t batch_step = kLineElements * step;
    const std::int64_t start = first;
    dispatch_dtype(job_.target_dtype, [&](auto tag) {
      using Label = typename decltype(tag)::type;
      const T* preds = static_cast<const T*>(job_.preds) + base.preds;
      const auto* target = static_cast<const Label*>(job_.target) + base.target;
      for (; first + batch_step - step < job_.element_count; first += batch_step)
        judge_batch<true>(preds, target, first, step);
      if (first < job_.element_count) judge_batch<false>(preds, target, first, step);
    });
    if (line_has_bad_ && job_.rule.report) report_bad_line(job_, group_, base.target, start, step);
  }

  Counts counts;
  unsigned int visited = 0;  // of a line: ignored and bad elements as well
  bool outside = false;

 private:
  // Past the end the first element is read again, which `state_of` takes for an ignored one.
  __device__ void locate(const Offsets& base, std::int64_t first, std::int64_t step,
                         std::int64_t (&preds_at)[kElements],
                         std::int64_t (&target_at)[kElements]) const {
    const auto& elements = job_.elements;
    const Offsets start = elements(first);
    // For elements along one dimension.
    const Offsets stride = {step * elements.preds_stride[0], step * elements.target_stride[0]};
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      Offsets at = start;
      if (i > 0 && first + i * step < job_.element_count) {
        if (elements.rank > 1)
          at = elements(first + i * step);
        else
          at = {start.preds + i * stride.preds, start.target + i * stride.target};
      }
      preds_at[i] = base.preds + at.preds;
      target_at[i] = base.target + at.target;
    }
  }

  __device__ LabelState state_of(std::int64_t element, std::int64_t target) const {
    return element < job_.element_count ? job_.rule.judge_target(target) : LabelState::kIgnored;
  }

  // Without a branch: nearly all elements are valid.
  template <class Compute>
  __device__ void judge_score(Compute score, bool wanted, bool valid) {
    outside |= is_outside_unit_interval(score);
    const bool as_probability = score > static_cast<Compute>(job_.threshold.probability);
    const bool as_logit = score >= static_cast<Compute>(job_.threshold.logit);
    counts.valid += valid;
    counts.positive += valid && wanted;
    counts.probability_correct += valid && as_probability == wanted;
    counts.logit_correct += valid && as_logit == wanted;
    counts.probability_hits += valid && as_probability && wanted;
    counts.logit_hits += valid && as_logit && wanted;
  }

  __device__ void judge_label(std::int64_t predicted, std::int64_t target) {
    ++counts.valid;
    counts.positive += target == 1;
    counts.probability_correct += predicted == target;
    counts.probability_hits += predicted == target && target == 1;
  }

  template <bool kFull, class Label>
  __device__ __forceinline__ void judge_batch(const T* preds, const Label* target,
                                              std::int64_t first, std::int64_t step) {
    T scores[kLineElements] = {};
    Label labels[kLineElements] = {};
    const auto is_there = [&](int i) { return kFull || first + i * step < job_.element_count; };
    preds += first * job_.elements.preds_stride[0];
    target += first * job_.elements.target_stride[0];
#pragma unroll
    for (int i = 0; i < kLineElements; ++i) {
      if (is_there(i)) scores[i] = *preds;
      preds += step * job_.elements.preds_stride[0];
    }
#pragma unroll
    for (int i = 0; i < kLineElements; ++i) {
      if (is_there(i)) labels[i] = *target;
      target += step * job_.elements.target_stride[0];
    }
    const ScoreBounds<ComputeOf<T>> bounds(job_.threshold);
    unsigned int batch = 0;
#pragma unroll
    for (int i = 0; i < kLineElements; ++i) {
      visited += is_there(i);
      const std::int64_t label = label_of(labels[i], job_.rule.truncate_target);
      const bool known = static_cast<std::uint64_t>(label) < 2;
      const bool ignored = job_.rule.has_ignore_index && label == job_.rule.ignore_index;
      const auto score = to<ComputeOf<T>>(scores[i]);
      outside |= is_outside_unit_interval(score);
      line_has_bad_ |= !known && !ignored;
      const unsigned int positive = static_cast<unsigned int>(label) << kBatchFieldBits;
      if (known && !ignored && is_there(i)) batch += (positive + 1) * bounds.places(score);
    }
    add_batch(counts, batch);
  }

  // `targets` and `preds`: a bit for each bad one of the elements `step` apart.
  __device__ void reject(std::int64_t first, std::int64_t step, unsigned int targets,
                         unsigned int preds) {
    if (job_.rule.report)
      report_bad_labels(job_, group_, first, step, targets, preds);
    else if (job_.rule.bad_is_wrong)
      counts.valid += __popc(targets | preds);
  }

  const CountJob& job_;
  std::int64_t group_;
  bool line_has_bad_ = false;
};

}  // namespace syncfree::accuracy
