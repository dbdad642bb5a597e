// Accuracy on the CPU: blocks of positions become labels and predictions, then integer counts.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <type_traits>

#include "accuracy/accuracy.h"
#include "accuracy/accuracy_cpu_plan.h"
#include "accuracy/accuracy_cpu_tally.h"
#include "accuracy/accuracy_math.h"
#include "accuracy/label_rule.h"
#include "core/isa.h"

#define SYNCFREE_KERNEL "accuracy/accuracy_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::accuracy {
namespace {

using namespace cpu;

constexpr std::int64_t kManyGroups = 8;  // enough for each thread to take whole ones

Kernels choose_kernels(DType preds, DType target, bool hits) {
  Kernels kernels;
  const auto label_loader = []<class T>(TypeTag<T>) {
    return select_isa(&baseline::load_labels<T>, &avx2::load_labels<T>, &avx512::load_labels<T>);
  };
  kernels.load_preds = dispatch_dtype(preds, label_loader);
  kernels.load_target = dispatch_dtype(target, label_loader);
  kernels.match_labels =
      select_isa(&baseline::match_labels, &avx2::match_labels, &avx512::match_labels);
  dispatch_dtype(preds, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_integral_v<T>) {
      kernels.predict = select_isa(&baseline::predict<T>, &avx2::predict<T>, &avx512::predict<T>);
      kernels.threshold =
          select_isa(&baseline::threshold<T>, &avx2::threshold<T>, &avx512::threshold<T>);
    }
  });
  const auto choose_tally = [&]<bool kHits>(std::bool_constant<kHits>) {
    kernels.tally_one =
        select_isa(&baseline::tally_one<kHits>, &avx2::tally_one<kHits>, &avx512::tally_one<kHits>);
    kernels.tally_each = select_isa(&baseline::tally_each<kHits>, &avx2::tally_each<kHits>,
                                    &avx512::tally_each<kHits>);
  };
  hits ? choose_tally(std::true_type{}) : choose_tally(std::false_type{});
  return kernels;
}

// Binary and multilabel scores count as probabilities until one of them proves that they are
// logits; then the work starts again with the other bound.
struct Reading {
  bool logits = false;
  std::atomic<bool> refuted = false;
};

// Takes a bad label out of the count, or counts it as wrong, and notes it.
void reject(const Plan& plan, std::int64_t index, ErrorKind kind, std::int64_t value,
            std::int64_t& label, BadLabels& bad) {
  if (plan.rule.report) bad.merge({1, error_order(index, kind), value});
  label = plan.rule.bad_is_wrong ? kWrong : kSkipped;
}

// The second look at a block with bad labels. They are read again: a bad one may equal kSkipped.
void screen_target(const Plan& plan, std::int64_t first_index, std::int64_t stride, Block& block,
                   BadLabels& bad) {
  plan.kernels.load_target(block.target, stride, block.count, {0, plan.rule.truncate_target},
                           block.labels);
  for (std::int64_t i = 0; i < block.count; ++i) {
    std::int64_t& label = block.labels[i];
    const LabelState state = plan.rule.judge_target(label);
    if (state == LabelState::kIgnored) label = kSkipped;
    if (state == LabelState::kBad)
      reject(plan, first_index + i, ErrorKind::kTargetOutOfRange, label, label, bad);
  }
}

void screen_preds(const Plan& plan, std::int64_t first_index, Block& block, BadLabels& bad) {
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t predicted = block.predictions[i];
    if (plan.rule.in_range(predicted)) continue;
    block.predictions[i] = kOther;
    if (block.labels[i] != kSkipped && plan.rule.judge_prediction(predicted) == LabelState::kBad)
      reject(plan, first_index + i, ErrorKind::kPredsOutOfRange, predicted, block.labels[i], bad);
  }
}

void read_labels(const Plan& plan, std::int64_t first_index, std::int64_t preds_stride,
                 Block& block, BadLabels& bad) {
  const LabelRange range{plan.rule.classes, plan.rule.truncate};
  const bool any_bad =
      plan.kernels.load_preds(block.preds, preds_stride, block.count, range, block.predictions);
  if (plan.rule.classes == 0)
    plan.kernels.match_labels(plan.rule, block.count, block.labels, block.predictions);
  else if (any_bad)
    screen_preds(plan, first_index, block, bad);
}

// A target among the top_k becomes the prediction; otherwise the top class is. For several k, ranks
// and predictions are kept apart.
void predict(const Plan& plan, ScoreRun run, Block& block) {
  const bool several = plan.top_ks.count > 0;
  run.find = plan.needs_class ? Find::kClass : Find::kHit;
  if (plan.needs_class || !several) plan.kernels.predict(run, block.labels, block.predictions);
  if (!plan.needs_rank) return;
  run.find = Find::kRank;
  plan.kernels.predict(run, block.labels, block.ranks);
  if (several) return;
  for (std::int64_t i = 0; i < block.count; ++i)
    if (block.ranks[i] >= 0 && block.ranks[i] < plan.top_k) block.predictions[i] = block.labels[i];
}

// Reads one block: afterwards its labels and predictions can be compared.
void read_block(const Plan& plan, std::int64_t group, Reading& reading, Block& block,
                BadLabels& bad) {
  const Kernels& kernels = plan.kernels;
  const LabelRule& rule = plan.rule;
  const std::int64_t first_index = group * plan.positions + block.first;
  const std::int64_t preds_stride = plan.preds.stride[plan.preds.rank - 1];
  const std::int64_t target_stride = plan.target.stride[plan.target.rank - 1];
  // Where the range is unknown any integer is a label, even kSkipped: match_labels skips instead.
  const LabelRange target{rule.classes, rule.truncate_target,
                          rule.has_ignore_index && rule.classes != 0, rule.ignore_index};
  if (kernels.load_target(block.target, target_stride, block.count, target, block.labels))
    screen_target(plan, first_index, target_stride, block, bad);
  if (!plan.scores) {
    read_labels(plan, first_index, preds_stride, block, bad);
    return;
  }
  const ScoreRun run{block.preds, preds_stride, plan.class_stride, plan.classes,
                     block.count, plan.top_k,   Find::kClass};
  if (plan.multiclass) {
    predict(plan, run, block);
  } else if (kernels.threshold(run, plan.thresholds, reading.logits, block.predictions) &&
             !reading.logits) {
    reading.refuted = true;
  }
}

void count_group(const Plan& plan, std::int64_t group, ParallelFor parallel_for, Reading& reading,
                 Shared& shared) {
  parallel_ranges(parallel_for, 0, plan.blocks, plan.grain,
                  [&](std::int64_t begin, std::int64_t end) {
                    Tally tally(plan, shared, (end - begin) * plan.block);
                    BadLabels bad;
                    Block block;
                    for (std::int64_t i = begin; i < end && !reading.refuted; ++i) {
                      locate(plan, group, i, block);
                      read_block(plan, group, reading, block, bad);
                      tally.add(block);
                    }
                    tally.finish(bad);
                  });
}

std::int64_t sum_over_slots(const Plan& plan, const std::int64_t* counts) {
  return std::accumulate(counts, counts + plan.slots, std::int64_t{0});
}

// The value of one group for one k, or those of its slots.
void average(const Problem& problem, const Plan& plan, int top_k, const Counts& counts,
             float* value) {
  const auto fraction = [&](std::int64_t slot) {
    return safe_fraction(static_cast<std::uint64_t>(counts.correct[slot]),
                         static_cast<std::uint64_t>(counts.counted[slot]));
  };
  if (is_plain_fraction(problem)) {
    *value = safe_fraction(static_cast<std::uint64_t>(sum_over_slots(plan, counts.correct)),
                           static_cast<std::uint64_t>(sum_over_slots(plan, counts.counted)));
    return;
  }
  if (problem.average == Average::kNone) {
    for (std::int64_t slot = 0; slot < plan.slots; ++slot) value[slot] = fraction(slot);
    return;
  }
  const auto weight = [&](std::int64_t slot) -> std::uint64_t {
    if (problem.average == Average::kWeighted)
      return static_cast<std::uint64_t>(counts.extra[slot]);
    if (!plan.multiclass) return 1;
    const auto tp = static_cast<std::uint64_t>(counts.correct[slot]);
    const auto fn = static_cast<std::uint64_t>(counts.counted[slot]) - tp;
    const auto predicted = static_cast<std::uint64_t>(counts.extra[slot]);
    return class_takes_part(tp, predicted - tp, fn, top_k);
  };
  std::uint64_t total = 0, sum = 0;
  for (std::int64_t slot = 0; slot < plan.slots; ++slot) total += weight(slot);
  const bool weighted = problem.average == Average::kWeighted;
  const int shift = fixed_point_shift(weighted ? total : static_cast<std::uint64_t>(plan.slots));
  for (std::int64_t slot = 0; slot < plan.slots; ++slot)
    if (counts.correct[slot] != 0)
      sum += weighted_fraction(weight(slot), static_cast<std::uint64_t>(counts.correct[slot]),
                               static_cast<std::uint64_t>(counts.counted[slot]), shift);
  *value = mean_of_fractions(sum, total, shift);
}

// The same for each of several k, whose values are `stride` apart.
void average_each_k(const Problem& problem, const Plan& plan, Counts& counts, float* value,
                    std::int64_t stride) {
  for (int misses = 0; misses <= plan.top_ks.count; ++misses)
    for (std::int64_t slot = 0; slot < plan.slots; ++slot)
      counts.counted[slot] += counts.misses[misses * plan.slots + slot];
  for (int i = 0; i < plan.top_ks.count; ++i) {
    // Positions that miss the `i` smallest k alone are right from this k on.
    for (std::int64_t slot = 0; slot < plan.slots; ++slot)
      counts.correct[slot] += counts.misses[i * plan.slots + slot];
    average(problem, plan, plan.top_ks.k[i], counts, value + plan.top_ks.place[i] * stride);
  }
}

// A slot's counts as TorchMetrics has them. `counted`: elements counted in the whole group.
struct SlotCounts {
  std::int64_t number[kCountKinds];
};

SlotCounts counts_of(const Problem& problem, const Plan& plan, const Counts& counts,
                     std::int64_t slot, std::int64_t counted) {
  const std::int64_t correct = counts.correct[slot], here = counts.counted[slot];
  const std::int64_t wrong = here - correct;
  if (plan.by_class) {
    const std::int64_t fp = counts.extra[slot] - correct;
    return {correct, fp, counted - here - fp, wrong};
  }
  if (plan.multiclass) {
    // Each wrong element is a false positive of one class and a false negative of another. With an
    // unknown number of classes TorchMetrics takes it as 1, and `tn` goes below zero.
    const std::int64_t classes = std::max<std::int64_t>(problem.num_classes, 1);
    return {correct, wrong, classes * here - correct - 2 * wrong, wrong};
  }
  const std::int64_t hits = counts.hits[slot], positive = counts.extra[slot];
  const std::int64_t rejections = correct - hits;
  return {hits, here - positive - rejections, rejections, positive - hits};
}

void hand_over(const Problem& problem, const Plan& plan, const Counts& counts, std::int64_t group) {
  const CountsView& out = problem.counts;
  const std::int64_t counted = sum_over_slots(plan, counts.counted);
  for (std::int64_t slot = 0; slot < plan.slots; ++slot) {
    const SlotCounts here = counts_of(problem, plan, counts, slot, counted);
    for (int kind = 0; kind < kCountKinds; ++kind) {
      std::int64_t& place = out.data[kind][(group * plan.slots + slot) * out.stride[kind]];
      place = problem.samplewise ? here.number[kind] : place + here.number[kind];
    }
  }
}

}  // namespace

void run(const Problem& problem, ParallelFor parallel_for, ErrorRecord* error) {
  const bool hits = problem.counts.wanted() && problem.task != Task::kMulticlass;
  const Plan plan(problem, choose_kernels(problem.preds.dtype, problem.target.dtype, hits));
  const bool per_slot = !is_plain_fraction(problem) && problem.average == Average::kNone;
  const std::int64_t values = per_slot ? plan.slots : 1;
  const int k_count = plan.top_ks.count;
  Reading reading;
  BadLabels bad;
  std::mutex mutex;
  const auto evaluate_group = [&](std::int64_t group, ParallelFor threads) {
    Shared shared(plan);
    count_group(plan, group, threads, reading, shared);
    float* value = problem.value == nullptr ? nullptr : problem.value + group * values;
    if (value != nullptr && k_count > 0)
      average_each_k(problem, plan, shared.counts, value, plan.groups * values);
    else if (value != nullptr)
      average(problem, plan, static_cast<int>(plan.top_k), shared.counts, value);
    const bool final = !reading.refuted && shared.bad.count == 0;
    if (problem.counts.wanted() && final) hand_over(problem, plan, shared.counts, group);
    const std::lock_guard lock(mutex);
    bad.merge(shared.bad);
  };
  const auto evaluate = [&] {
    if (plan.groups < kManyGroups) {
      for (std::int64_t group = 0; group < plan.groups; ++group)
        evaluate_group(group, parallel_for);
      return;
    }
    const std::int64_t grain =
        std::max<std::int64_t>(1, plan.grain / std::max<std::int64_t>(1, plan.blocks));
    parallel_ranges(parallel_for, 0, plan.groups, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t group = begin; group < end; ++group) evaluate_group(group, &run_serially);
    });
  };
  evaluate();
  if (reading.refuted) {
    reading.logits = true;
    reading.refuted = false;
    bad = {};
    evaluate();
  }
  if (bad.count == 0 || error == nullptr) return;
  if (problem.value != nullptr)
    std::fill_n(problem.value, std::max(k_count, 1) * plan.groups * values,
                std::numeric_limits<float>::quiet_NaN());
  *error = error_record(plan.rule, bad.first, bad.value, bad.count, problem.call);
}

}  // namespace syncfree::accuracy
