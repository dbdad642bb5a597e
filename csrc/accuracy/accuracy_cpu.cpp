// Accuracy on the CPU: blocks of positions become labels and predictions, then integer counts.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <type_traits>

#include "accuracy/accuracy.h"
#include "accuracy/accuracy_cpu_plan.h"
#include "accuracy/accuracy_cpu_tally.h"
#include "accuracy/accuracy_math.h"
#include "core/isa.h"

#define SYNCFREE_KERNEL "accuracy/accuracy_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::accuracy {
namespace {

using namespace cpu;

constexpr std::int64_t kManyGroups = 8;  // enough for a thread each

Kernels choose_kernels(DType preds, DType target) {
  Kernels kernels;
  const auto label_loader = []<class T>(TypeTag<T>) {
    return select_isa(&baseline::load_labels<T>, &avx2::load_labels<T>, &avx512::load_labels<T>);
  };
  kernels.load_preds = dispatch_dtype(preds, label_loader);
  kernels.load_target = dispatch_dtype(target, label_loader);
  dispatch_dtype(preds, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_integral_v<T>) {
      kernels.predict = select_isa(&baseline::predict<T>, &avx2::predict<T>, &avx512::predict<T>);
      kernels.threshold =
          select_isa(&baseline::threshold<T>, &avx2::threshold<T>, &avx512::threshold<T>);
    }
  });
  kernels.tally_one = select_isa(&baseline::tally_one, &avx2::tally_one, &avx512::tally_one);
  kernels.tally_each = select_isa(&baseline::tally_each, &avx2::tally_each, &avx512::tally_each);
  return kernels;
}

// Binary and multilabel scores count as probabilities until one of them proves that they are
// logits; then the work starts again with the other bound.
struct Reading {
  bool logits = false;
  std::atomic<bool> refuted = false;
};

// Takes bad labels, judged by their target or prediction, out of the count and notes them.
void screen(const Plan& plan, std::int64_t first_index, ErrorKind kind, const std::int64_t* judged,
            Block& block, BadLabels& bad) {
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t label = judged[i];
    if (block.labels[i] == kSkipped) continue;
    if (label >= plan.range.low && label <= plan.range.high) continue;
    if (kind == ErrorKind::kPredsOutOfRange && label == kFractionLabel) continue;
    if (plan.rule.report) bad.merge({1, error_order(first_index + i, kind), label});
    block.labels[i] = plan.rule.bad_is_wrong ? kWrong : kSkipped;
  }
}

// Reads one block: afterwards labels and predictions are fit to be compared.
void read_block(const Plan& plan, std::int64_t group, Reading& reading, Block& block,
                BadLabels& bad) {
  const Kernels& kernels = plan.kernels;
  const std::int64_t first_index = group * plan.positions + block.first;
  const std::int64_t preds_stride = plan.preds.stride[plan.preds.rank - 1];
  const std::int64_t target_stride = plan.target.stride[plan.target.rank - 1];
  if (kernels.load_target(block.target, target_stride, block.count, plan.range, block.labels))
    screen(plan, first_index, ErrorKind::kTargetOutOfRange, block.labels, block, bad);
  const ScoreRun run{block.preds, preds_stride, plan.class_stride, plan.classes,
                     block.count, plan.top_k,   !plan.needs_class};
  if (!plan.scores) {
    LabelRange range = plan.range;
    range.ignored = kSkipped;
    if (kernels.load_preds(block.preds, preds_stride, block.count, range, block.predictions))
      screen(plan, first_index, ErrorKind::kPredsOutOfRange, block.predictions, block, bad);
  } else if (plan.multiclass) {
    kernels.predict(run, block.labels, block.predictions);
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

// The averages of one group.
void average(const Problem& problem, const Plan& plan, const Counts& counts, float* value) {
  const auto fraction = [&](std::int64_t slot) {
    return safe_fraction(static_cast<std::uint64_t>(counts.correct[slot]),
                         static_cast<std::uint64_t>(counts.counted[slot]));
  };
  if (is_plain_fraction(problem)) {
    *value = fraction(0);
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
    return class_takes_part(tp, predicted - tp, fn, static_cast<int>(plan.top_k));
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

}  // namespace

void run(const Problem& problem, ParallelFor parallel_for, ErrorRecord* error) {
  const Plan plan(problem, choose_kernels(problem.preds.dtype, problem.target.dtype));
  const bool per_slot = !is_plain_fraction(problem) && problem.average == Average::kNone;
  const std::int64_t values = per_slot ? plan.slots : 1;
  Reading reading;
  BadLabels bad;
  std::mutex mutex;
  const auto evaluate_group = [&](std::int64_t group, ParallelFor threads) {
    Shared shared(plan.slots);
    count_group(plan, group, threads, reading, shared);
    average(problem, plan, shared.counts, problem.value + group * values);
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
  std::fill_n(problem.value, plan.groups * values, std::numeric_limits<float>::quiet_NaN());
  *error = {static_cast<std::int64_t>(error_kind(bad.first)), error_index(bad.first), bad.value,
            bad.count};
}

}  // namespace syncfree::accuracy
