// How the CPU walks a problem: its groups are the samples, or the whole batch.
//
// A position is an element's place in a group. A block is a number of positions that are evenly
// spaced in memory. The slots of a group are its classes or labels if these are counted apart.
#pragma once

#include <algorithm>
#include <cstdint>

#include "accuracy/accuracy.h"
#include "accuracy/accuracy_math.h"
#include "accuracy/label_rule.h"
#include "core/merge_dims.h"
#include "core/parallel.h"

namespace syncfree::accuracy::cpu {

// Labels that are no class, once they are judged: the first is not counted; the second is counted,
// but equals no prediction.
inline constexpr std::int64_t kSkipped = -1;
inline constexpr std::int64_t kWrong = -2;
// A prediction that equals no label.
inline constexpr std::int64_t kOther = -3;

// The most positions of a block: their scores of one class are a run that prefetchers follow, their
// labels and predictions stay in L2.
inline constexpr std::int64_t kBlock = 2048;

// The most scores of a block of rows, so that a few long rows still feed all threads.
inline constexpr std::int64_t kBlockScores = 1 << 16;

// Scores that justify another thread, 12 us of reading: on a machine that others use, starting a
// thread may take a time slice of the scheduler, milliseconds.
inline constexpr std::int64_t kGrain = 1 << 18;

// The range of valid labels, and how labels are read. Blocks with others get a second look.
struct LabelRange {
  std::int64_t classes;  // labels are 0 to classes - 1; 0 lets all pass
  bool truncate;
  bool has_ignored = false;
  std::int64_t ignored = 0;
};

// What to find for each position.
enum class Find {
  kClass,  // the predicted one
  kHit,    // the label if it is among the top_k, otherwise kOther
  kRank,   // how many classes are ahead of the label, exact below top_k; kOther if it is no class
};

// Scores of some positions, `position_stride` apart.
struct ScoreRun {
  const void* scores;
  std::int64_t position_stride;
  std::int64_t class_stride;
  std::int64_t classes;
  std::int64_t count;
  std::int64_t top_k;
  Find find;
};

// Where positions are counted: right, counted, positive, and positives predicted as such.
struct Counters {
  std::int64_t* correct;
  std::int64_t* counted;
  std::int64_t* positive;
  std::int64_t* hits;
};

// The functions of one instruction set for the element types at hand.
struct Kernels {
  using LoadLabels = bool(const void*, std::int64_t, std::int64_t, const LabelRange&,
                          std::int64_t*);
  using MatchLabels = void(const LabelRule&, std::int64_t, std::int64_t*, std::int64_t*);
  using Predict = void(const ScoreRun&, const std::int64_t*, std::int64_t*);
  using Threshold = bool(const ScoreRun&, const ScoreThreshold&, bool, std::int64_t*);
  using Tally = void(const std::int64_t*, const std::int64_t*, std::int64_t, const Counters&);

  LoadLabels* load_preds = nullptr;
  LoadLabels* load_target = nullptr;
  MatchLabels* match_labels = nullptr;
  Predict* predict = nullptr;  // floating scores only, like `threshold`
  Threshold* threshold = nullptr;
  Tally* tally_one = nullptr;
  Tally* tally_each = nullptr;
};

inline void erase_dim(TensorView& view, int dim) {
  for (int i = dim; i + 1 < view.rank; ++i) {
    view.size[i] = view.size[i + 1];
    view.stride[i] = view.stride[i + 1];
  }
  --view.rank;
}

inline const void* advance(const TensorView& view, std::int64_t elements) {
  return static_cast<const char*>(view.data) + elements * size_of(view.dtype);
}

// Positions are taken in the target's logical order.
struct Plan {
  Plan(const Problem& problem, const Kernels& chosen);

  Kernels kernels;
  LabelRule rule;
  ScoreThreshold thresholds;
  TensorView preds, target;  // one group's positions
  bool multiclass, scores, by_class, needs_class, needs_rank;
  std::int64_t classes, class_stride = 0, top_k;
  TopKList top_ks;
  std::int64_t groups = 1, preds_group_stride = 0, target_group_stride = 0;
  std::int64_t positions;         // in a group
  std::int64_t slots, slot_size;  // and consecutive positions of one slot
  std::int64_t block, blocks_per_row, blocks, grain;
};

inline Plan::Plan(const Problem& problem, const Kernels& chosen)
    : kernels(chosen),
      rule(label_rule(problem)),
      preds(problem.preds),
      target(problem.target),
      multiclass(problem.task == Task::kMulticlass),
      scores(!problem.preds_are_labels && is_floating(problem.preds.dtype)),
      by_class(multiclass && !is_pooled(problem)),
      needs_class(needs_predicted_class(problem)),
      needs_rank(problem.top_ks.count > 0 || (needs_class && effective_top_k(problem) > 1)),
      classes(multiclass ? class_count(problem) : 1),
      top_k(effective_top_k(problem)),
      top_ks(problem.top_ks),
      slots(by_class ? classes : 1) {
  if (!multiclass && scores) thresholds = score_threshold(preds.dtype, problem.threshold);
  if (multiclass && scores) {
    class_stride = preds.stride[1];
    erase_dim(preds, 1);
  }
  if (problem.samplewise) {
    groups = target.size[0];
    preds_group_stride = preds.stride[0];
    target_group_stride = target.stride[0];
    erase_dim(preds, 0);
    erase_dim(target, 0);
  }
  positions = slot_size = target.numel();
  if (problem.task == Task::kMultilabel && !is_pooled(problem)) {
    const int label_dim = problem.samplewise ? 0 : 1;
    slots = target.size[label_dim];
    slot_size = 1;
    for (int i = label_dim + 1; i < target.rank; ++i) slot_size *= target.size[i];
  }
  if (merge_dims(preds, target, 0, target.rank) == 0) {
    preds.rank = target.rank = 1;
    preds.size[0] = target.size[0] = 1;
  }
  const std::int64_t row = target.size[target.rank - 1];
  const std::int64_t depth = multiclass && scores ? std::max<std::int64_t>(classes, 1) : 1;
  const bool columns = preds.stride[preds.rank - 1] == 1;
  block = columns ? kBlock : std::clamp<std::int64_t>(kBlockScores / depth, 1, kBlock);
  block = std::clamp<std::int64_t>(row, 1, block);
  blocks_per_row = (row + block - 1) / block;
  blocks = positions == 0 ? 0 : positions / row * blocks_per_row;
  // Finding the best class takes several times as long as comparing with one score.
  grain = std::max<std::int64_t>(1, (needs_class ? kGrain / 8 : kGrain) / (block * depth));
}

struct Block {
  std::int64_t first;  // logical index within the group
  std::int64_t count;
  const void* preds;
  const void* target;
  std::int64_t labels[kBlock];
  std::int64_t predictions[kBlock];
  std::int64_t ranks[kBlock];  // if needed
};

inline void locate(const Plan& plan, std::int64_t group, std::int64_t index, Block& block) {
  const int inner = plan.target.rank - 1;
  const std::int64_t row = plan.target.size[inner];
  std::int64_t outer = index / plan.blocks_per_row;
  const std::int64_t start = index % plan.blocks_per_row * plan.block;
  block.first = outer * row + start;
  block.count = std::min(plan.block, row - start);
  std::int64_t preds = group * plan.preds_group_stride + start * plan.preds.stride[inner];
  std::int64_t target = group * plan.target_group_stride + start * plan.target.stride[inner];
  for (int d = inner - 1; d >= 0; --d) {
    const std::int64_t at = outer % plan.target.size[d];
    outer /= plan.target.size[d];
    preds += at * plan.preds.stride[d];
    target += at * plan.target.stride[d];
  }
  block.preds = advance(plan.preds, preds);
  block.target = advance(plan.target, target);
}

}  // namespace syncfree::accuracy::cpu
