// Chooses the kernel for a problem, its grid and its workspace.
#include "accuracy/count_plan.h"

#include <algorithm>
#include <bit>

#include "core/device_info.h"

namespace syncfree::accuracy {
namespace {

constexpr std::int64_t kSharedCounterBytes = 48000;  // of a block, without opting in to more
constexpr std::int64_t kSharedCopyBytes = 16384;     // of several copies together
// More classes or fractions than these take a launch of their own to finish. That costs the host 4
// us, and saves the GPU 1 us over one last block for 1000 classes, 7 us for 4096.
constexpr std::int64_t kFusedClasses = 1024;
constexpr std::int64_t kFusedFractions = 8192;
constexpr std::int64_t kFusedLabelMeans = 16;
// The most groups whose totals fit into a megabyte; more are finished where they are counted.
constexpr std::int64_t kMostSampleTotals = (std::int64_t{1} << 20) / sizeof(ElementTotals);
// Rows up to this length are shared by the lanes of a warp, longer ones by a block.
constexpr std::int64_t kLaneRowBytes = 8192;
// Rows up to this length are cheaper for one thread to walk.
constexpr std::int64_t kWalkedRowBytes = 64;
// Contiguous rows up to this length are staged: with the counters of as many classes they fit into
// the shared memory of a block.
constexpr std::int64_t kStagedRowBytes = 192;
constexpr std::int64_t kMostRowBlocks = 65536;
// Threads of block-per-row kernels, about as many as a multiprocessor holds.
constexpr std::int64_t kRowThreads = 1024;
constexpr std::int64_t kMostPrivateCounters = std::int64_t{1} << 23;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Whether a dimension of the target tells groups apart.
bool is_group_dimension(const Problem& problem, int dimension) {
  if (dimension == 0) return problem.samplewise;
  return dimension == 1 && problem.task == Task::kMultilabel && !is_pooled(problem);
}

void map_dimensions(const Problem& problem, CountJob& job) {
  const bool scores = problem.task == Task::kMulticlass && !problem.preds_are_labels;
  const TensorView& preds = problem.preds;
  const TensorView& target = problem.target;
  job.group_count = job.element_count = 1;
  std::int64_t inner = 1;
  for (int d = 0; d < target.rank; ++d) {
    const int p = scores && d > 0 ? d + 1 : d;
    if (is_group_dimension(problem, d)) {
      job.group_count *= target.size[d];
      job.groups.append(target.size[d], preds.stride[p], target.stride[d]);
      inner = 1;
    } else {
      job.element_count *= target.size[d];
      job.elements.append(target.size[d], preds.stride[p], target.stride[d]);
      inner *= target.size[d];
    }
  }
  job.adjacent = inner;
}

std::int64_t value_count(const Problem& problem, const CountJob& job) {
  if (problem.value == nullptr) return 0;
  if (job.tally == Tally::kRanks)
    return job.top_ks.count * job.group_count * (job.average == Average::kNone ? job.slots : 1);
  if (job.averages_labels) return problem.samplewise ? problem.target.size[0] : 1;
  return job.tally == Tally::kClasses && problem.average == Average::kNone
             ? job.group_count * job.classes
             : job.group_count;
}

bool is_vectorized(const Problem& problem, const CountJob& job) {
  const auto& elements = job.elements;
  const int last = elements.rank - 1;
  if (job.preds_dtype == DType::kFloat64) return false;  // single loads are wide enough
  if (last < 0 || elements.preds_stride[last] != 1 || elements.size[last] % 4 != 0) return false;
  const std::int64_t bytes = 4 * size_of(job.preds_dtype);
  if (reinterpret_cast<std::uintptr_t>(problem.preds.data) % bytes != 0) return false;
  bool aligned = job.class_stride % 4 == 0 || job.classes == 1;
  for (int d = 0; d < last; ++d) aligned = aligned && elements.preds_stride[d] % 4 == 0;
  for (int d = 0; d < job.groups.rank; ++d)
    aligned = aligned && job.groups.preds_stride[d] % 4 == 0;
  return aligned;
}

// Whether rows are contiguous and each warp's share of a group begins at a whole vector.
bool are_staged(const Problem& problem, const CountJob& job) {
  const std::int64_t score_bytes = size_of(job.preds_dtype);
  if (job.preds_dtype == DType::kFloat64 || job.class_stride != 1) return false;
  if (job.classes < 2 || job.classes * score_bytes > kStagedRowBytes) return false;
  const auto& elements = job.elements;
  if (elements.rank != 1 || elements.preds_stride[0] != job.classes) return false;
  bool aligned = reinterpret_cast<std::uintptr_t>(problem.preds.data) % 16 == 0;
  for (int d = 0; d < job.groups.rank; ++d)
    aligned = aligned && job.groups.preds_stride[d] * score_bytes % 16 == 0;
  return aligned;
}

// Spreads `wanted` blocks over groups of `tiles` tiles, several per group while groups are few.
void spread_blocks(CountJob& job, std::int64_t tiles, std::int64_t wanted) {
  std::int64_t per_group = std::clamp<std::int64_t>(wanted / job.group_count, 1, tiles);
  const bool many_counters = job.tally != Tally::kFraction && job.group_count > 1 &&
                             job.group_count * job.slots > kMostPrivateCounters / 32;
  if (many_counters) per_group = 1;
  job.blocks_per_group = static_cast<std::uint32_t>(per_group);
  job.blocks = static_cast<std::uint32_t>(per_group > 1 ? per_group * job.group_count
                                                        : std::min(job.group_count, wanted));
}

// Puts class counters in shared memory where a block counts enough to pay for clearing and
// flushing. `in_waves`: the grid is more than one wave, so that no block should linger at its end.
void place_class_counters(Plan& plan, std::int64_t tiles, std::int64_t rows_per_tile,
                          int most_copies, bool in_waves = false) {
  CountJob& job = plan.job;
  if (job.tally == Tally::kFraction) return;
  const std::int64_t cells = job.class_cells;
  const std::int64_t bytes = cells * static_cast<std::int64_t>(sizeof(unsigned int));
  const bool alone = job.blocks_per_group == 1;
  const std::int64_t rows = divide_up(tiles, job.blocks_per_group) * rows_per_tile;
  if (most_copies > 0 && bytes <= kSharedCounterBytes && (alone || 2 * rows >= job.slots))
    job.shared_copies =
        static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::clamp<std::int64_t>(
            kSharedCopyBytes / std::max<std::int64_t>(bytes, 1), 1, most_copies))));
  if (alone && job.shared_copies > 0) return;
  if (alone && cells > 0)
    job.blocks = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(kMostPrivateCounters / job.class_words(), 1, job.blocks));
  plan.class_totals = (alone ? job.blocks : job.group_count) * job.class_words();
  job.finish_separately = job.group_count == 1 && (job.slots > kFusedClasses || in_waves);
  if (job.finish_separately) plan.score_totals = job.k_count();
}

void plan_scores(const Problem& problem, Plan& plan, std::int64_t multiprocessors) {
  CountJob& job = plan.job;
  const std::int64_t row_bytes = job.classes * size_of(job.preds_dtype);
  job.class_stride = problem.preds.stride[1];
  const bool rows = (job.class_stride == 1 || job.classes == 1) && row_bytes > kWalkedRowBytes;

  if (are_staged(problem, job)) {
    plan.kernel = Kernel::kStagedRows;
    const std::int64_t tiles = divide_up(job.element_count, kStagedRowThreads);
    spread_blocks(job, tiles, multiprocessors * kStagedRowBlocksPerMultiprocessor);
    place_class_counters(plan, tiles, kStagedRowThreads, 4);
    return;
  }
  if (!rows) {
    plan.kernel = Kernel::kClassStrided;
    job.vectorized = is_vectorized(problem, job);
    const std::int64_t tiles = divide_up(job.element_count, 1024);
    const int resident = walk_blocks_per_multiprocessor(
        static_cast<std::size_t>(size_of(job.preds_dtype)), job.vectorized, walk_of(job));
    spread_blocks(job, tiles, multiprocessors * resident);
    place_class_counters(plan, tiles, 1024, 8);
    return;
  }
  const bool argmax = needs_predicted_class(problem);
  plan.kernel = argmax ? Kernel::kArgmaxRows : Kernel::kRankRows;
  // Block-per-row kernels count rows in 32 bits, which only an expanded tensor can exceed.
  const std::int64_t row_count = job.group_count * job.element_count;
  if (row_bytes <= kLaneRowBytes || row_count >> 31 != 0) {
    // Four vectors a lane are in flight together.
    job.lanes = 2;
    while (job.lanes < 32 && job.lanes * 4 * 16 < row_bytes) job.lanes *= 2;
    job.rows_at_once = row_bytes > job.lanes * 4 * 16 && row_count <= 8 * multiprocessors;
    const std::int64_t rows_per_tile = 128 / job.lanes;
    const std::int64_t tiles = divide_up(job.element_count, rows_per_tile);
    spread_blocks(job, tiles, multiprocessors * 8);
    place_class_counters(plan, tiles, rows_per_tile, 4);
  } else {
    // A few very long rows need more threads each to keep the memory busy; of shorter rows more
    // must be in flight at a time.
    const bool is_long = row_bytes > 4 * kLaneRowBytes;
    const bool few = row_count <= 2 * multiprocessors && is_long;
    job.lanes = few ? 1024 : argmax && is_long ? 256 : 128;
    spread_blocks(job, job.element_count, kMostRowBlocks);
    if (job.tally != Tally::kFraction && job.group_count > 1) {
      job.blocks_per_group = 1;
      job.blocks = static_cast<std::uint32_t>(std::min(job.group_count, kMostRowBlocks));
    }
    // Arriving at a group's ticket takes a block two round trips to L2, as long as some rows take.
    const bool in_waves = job.blocks > multiprocessors * kRowThreads / job.lanes;
    place_class_counters(plan, job.element_count, 1, 0, in_waves);
  }
}

// Threads that share a group, one for every few elements: a power of two up to a warp, or a block.
int lanes_for(std::int64_t elements) {
  if (elements >= 2048) return kElementThreads;
  int lanes = 1;
  while (lanes < 32 && lanes * 4 < elements) lanes *= 2;
  return lanes;
}

// Whether nothing but one fraction of a line of scores is wanted, whose counts fit into a word. A
// block that leaves elements out needs a fence there: where many do, the totals are quicker.
bool is_line_fraction(const CountJob& job, std::int64_t multiprocessors) {
  return job.is_line && job.group_count == 1 && job.values == 1 && !job.averages_labels &&
         !job.counts.wanted() && !job.rule.has_ignore_index &&
         job.element_count >> kLineCountBits == 0 &&
         multiprocessors * column_blocks_per_multiprocessor(true) >> kLineBlockBits == 0;
}

void plan_elements(const Problem& problem, Plan& plan, std::int64_t multiprocessors) {
  CountJob& job = plan.job;
  plan.kernel = Kernel::kElementFractions;
  job.predicts_labels = problem.preds_are_labels || !is_floating(job.preds_dtype);
  if (!job.predicts_labels) job.threshold = score_threshold(job.preds_dtype, problem.threshold);

  const auto& groups = job.groups;
  const auto& elements = job.elements;
  const bool groups_are_adjacent =
      groups.rank > 0 && groups.preds_stride[groups.rank - 1] == 1 &&
      (elements.rank == 0 || elements.preds_stride[elements.rank - 1] != 1);
  job.lanes = groups_are_adjacent ? 1 : lanes_for(job.element_count);

  if (problem.samplewise && job.group_count > kMostSampleTotals) {
    plan.kernel = Kernel::kSampleFractions;
    job.sample_lanes = job.averages_labels ? lanes_for(job.classes * job.element_count) : job.lanes;
    job.samples = job.averages_labels ? problem.target.size[0] : job.group_count;
    job.blocks =
        static_cast<std::uint32_t>(divide_up(job.samples * job.sample_lanes, kElementThreads));
    return;
  }

  if (groups_are_adjacent || job.lanes == kElementThreads) {
    job.is_line = !job.predicts_labels && elements.rank <= 1;
    if (is_line_fraction(job, multiprocessors)) plan.kernel = Kernel::kLineFraction;
    // Columns as wide as a warp keep atomics on the totals few; more keep short groups busy.
    const std::int64_t rows =
        groups_are_adjacent
            ? std::clamp<std::int64_t>(divide_up(job.element_count, kLineElements), 1, 8)
            : kElementThreads;
    const std::int64_t columns = std::min(job.group_count, kElementThreads / rows);
    const std::int64_t tiles = divide_up(job.group_count, columns);
    // The fewest batches per thread with which one wave covers all elements, equal for all threads.
    const std::int64_t batch = kLineElements * (kElementThreads / columns);
    const std::int64_t most = std::max<std::int64_t>(
        multiprocessors * column_blocks_per_multiprocessor(job.is_line) / tiles, 1);
    const std::int64_t batches = divide_up(job.element_count, most * batch);
    const std::int64_t turns = divide_up(job.element_count, batches * batch);
    job.columns = static_cast<int>(columns);
    job.tiles = static_cast<std::uint32_t>(tiles);
    job.blocks_per_group = static_cast<std::uint32_t>(turns);
    job.blocks = static_cast<std::uint32_t>(tiles * turns);
  } else {
    const std::int64_t threads =
        multiprocessors * kElementBlocksPerMultiprocessor * kElementThreads;
    const std::int64_t turns =
        std::clamp<std::int64_t>(threads / job.lanes / job.group_count, 1,
                                 divide_up(job.element_count, std::int64_t{kElements} * job.lanes));
    job.blocks_per_group = static_cast<std::uint32_t>(turns);
    job.blocks =
        static_cast<std::uint32_t>(divide_up(job.group_count * turns * job.lanes, kElementThreads));
  }
  job.finish_separately =
      job.group_count > kFusedFractions || (job.averages_labels && job.values > kFusedLabelMeans);
  plan.element_totals = job.group_count;
}

}  // namespace

Plan make_plan(const Problem& problem) {
  Plan plan;
  CountJob& job = plan.job;
  job.preds = problem.preds.data;
  job.target = problem.target.data;
  job.preds_dtype = problem.preds.dtype;
  job.target_dtype = problem.target.dtype;
  map_dimensions(problem, job);
  job.classes = class_count(problem);
  job.top_k = effective_top_k(problem);
  job.top_ks = problem.top_ks;
  job.rule = label_rule(problem);
  job.average = problem.average;
  const bool class_counts = problem.task == Task::kMulticlass && !is_pooled(problem);
  job.tally = class_counts ? Tally::kClasses : Tally::kFraction;
  if (job.top_ks.count > 0) job.tally = Tally::kRanks;
  if (job.tally == Tally::kRanks && !class_counts) job.average = Average::kNone;
  job.counts_false_positives = needs_predicted_class(problem);
  if (class_counts) job.slots = job.classes;
  if (job.tally != Tally::kFraction) {
    job.class_cells = (job.k_count() + 1 + job.counts_false_positives) * job.slots;
    job.mean_shift = fixed_point_shift(static_cast<std::uint64_t>(job.slots));
    if (job.tally == Tally::kClasses &&
        static_cast<std::uint64_t>(job.element_count) <= kPackedMask)
      job.field_bits = kPackedBits;
    else
      job.field_stride = job.slots;
  }
  job.averages_labels = problem.value != nullptr && problem.task == Task::kMultilabel &&
                        !is_pooled(problem) && problem.average != Average::kNone;
  job.counts = problem.counts;
  job.counts_are_added = !problem.samplewise;
  job.counts_elements = problem.task != Task::kMulticlass;
  job.pooled_classes = std::max<std::int64_t>(problem.num_classes, 1);
  job.call = problem.call;
  job.value = problem.value;
  job.values = value_count(problem, job);
  if (job.group_count == 0 || job.element_count == 0) return plan;

  const std::int64_t multiprocessors = current_device_info().multiprocessors;
  if (problem.task == Task::kMulticlass && !problem.preds_are_labels) {
    plan_scores(problem, plan, multiprocessors);
  } else if (class_counts) {
    plan.kernel = Kernel::kLabelCounts;
    const std::int64_t tiles = divide_up(job.element_count, 1024);
    spread_blocks(job, tiles, multiprocessors * 4);
    place_class_counters(plan, tiles, 1024, 8);
  } else {
    plan_elements(problem, plan, multiprocessors);
    return plan;
  }
  if (job.blocks_per_group > 1) plan.group_totals = job.group_count;
  return plan;
}

}  // namespace syncfree::accuracy
