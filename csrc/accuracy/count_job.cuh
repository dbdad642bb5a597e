// What a counting kernel is told: where the elements lie, what to count, where the counts go.
//
// Elements form groups, one for each fraction or set of class counts: the whole batch, a sample, a
// label, or a label of a sample. The blocks of a group take its elements in turns, a tile at a
// time; a block's share of a group is a unit. A slot is a class with counters of its own, or all
// classes together; a field is a kind of counter, a cell one field of one slot. The scores of one
// element are a row; threads that share a row or a short group are lanes of a team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "accuracy/accuracy.h"
#include "accuracy/accuracy_math.h"
#include "accuracy/label_rule.h"
#include "core/divide.h"
#include "core/error_record.h"
#include "core/tensor_view.h"

namespace syncfree::accuracy {

struct Offsets {
  std::int64_t preds = 0;
  std::int64_t target = 0;
};

// Maps row-major indices over a few dimensions to offsets in both tensors.
template <int kCapacity>
struct IndexMap {
  int rank = 0;
  std::int64_t size[kCapacity] = {};
  std::int64_t preds_stride[kCapacity] = {};
  std::int64_t target_stride[kCapacity] = {};

  // Dimensions are appended from the outermost to the innermost, and merged where both tensors
  // allow it, since each one costs a division per index.
  void append(std::int64_t extent, std::int64_t preds, std::int64_t target) {
    if (extent == 1) return;
    if (rank > 0 && preds_stride[rank - 1] == preds * extent &&
        target_stride[rank - 1] == target * extent) {
      --rank;
      extent *= size[rank];
    }
    size[rank] = extent;
    preds_stride[rank] = preds;
    target_stride[rank] = target;
    ++rank;
  }

  __device__ Offsets operator()(std::int64_t index) const {
    Offsets offsets;
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const std::int64_t outer = divide(index, size[d]);
      const std::int64_t inner = index - outer * size[d];
      offsets.preds += inner * preds_stride[d];
      offsets.target += inner * target_stride[d];
      index = outer;
    }
    if (rank > 0) {
      offsets.preds += index * preds_stride[0];
      offsets.target += index * target_stride[0];
    }
    return offsets;
  }
};

// Workspace, all of it in Workspace::zeroed.

struct GridTotals {
  unsigned long long bad_labels;
  unsigned long long bad_first;  // complement of the lowest error_order, so that zero means none
  unsigned long long counted;    // elements, where a separate kernel finishes the group
  unsigned int outside;          // whether a score lay outside [0, 1]
  unsigned int ticket;
};

// The terms of a mean that several blocks finish.
struct ScoreTotals {
  unsigned long long sum;
  unsigned long long count;
};

struct GroupTotals {
  unsigned long long correct;
  unsigned long long valid;
  unsigned int ticket;
};

// Counts of a group's elements, with scores read both as probabilities and as logits.
struct ElementTotals {
  unsigned long long probability_correct;
  unsigned long long logit_correct;
  unsigned long long probability_hits;  // positives predicted as such
  unsigned long long logit_hits;
  unsigned long long valid;
  unsigned long long positive;
};

// The fields of a group's class counters in memory order, `slots` counters each. The last one is
// not always there. Tally::kRanks has a field for each number of missed k instead of the first two.
enum ClassField : int { kTruePositive = 0, kFalseNegative = 1, kFalsePositive = 2 };

// In groups of up to kPackedMask elements three counters fit into one word: those of a fraction,
// whose single atomic is total and ticket at once, or those of a class. A launch of a few
// microseconds notices each further round trip to L2.
inline constexpr int kPackedBits = 21;
inline constexpr unsigned long long kPackedMask = (1ull << kPackedBits) - 1;

enum class Tally : int {
  kFraction,  // correct and valid of a group
  kClasses,   // per class of a group
  kRanks,     // how many of several k are missed, per class of a group or of all together
};

struct CountJob {
  const void* preds = nullptr;
  const void* target = nullptr;
  DType preds_dtype = DType::kFloat32;
  DType target_dtype = DType::kInt64;
  IndexMap<2> groups;
  IndexMap<kMaxRank> elements;  // within a group
  std::int64_t group_count = 1;
  std::int64_t element_count = 0;  // of one group
  // How many consecutive elements of a group are also consecutive in the target's logical order.
  std::int64_t adjacent = 1;

  std::int64_t classes = 0;  // to be walked and counted
  std::int64_t class_stride = 0;
  int top_k = 1;
  TopKList top_ks;
  LabelRule rule;
  ScoreThreshold threshold;
  Tally tally = Tally::kFraction;
  Average average = Average::kMicro;
  bool averages_labels = false;  // a value is an average of `classes` consecutive groups
  bool predicts_labels = false;

  // Blocks of a group; with one, a block takes group after group.
  std::uint32_t blocks_per_group = 1;
  std::uint32_t blocks = 1;
  // Threads that share a row of scores or a group of elements.
  int lanes = 32;
  // There are so few rows that waiting for a second round of loads costs more than the bytes that a
  // first round, twice as long, reads in vain.
  bool rows_at_once = false;
  // Adjacent groups that a block takes side by side, and how many blocks cover all groups; 0 where
  // each group has a team of lanes.
  int columns = 0;
  std::uint32_t tiles = 0;
  bool is_line = false;  // scores whose elements lie one stride apart
  // Threads that share a sample, a multiple of `lanes`, and the number of samples.
  int sample_lanes = 32;
  std::int64_t samples = 0;
  std::int64_t slots = 1;               // classes with counters of their own, or 1
  std::int64_t class_cells = 0;         // counters of a group
  bool counts_false_positives = false;  // behind the other counters
  int mean_shift = 0;                   // fraction bits of a sum over the slots
  // The distance between the fields of a class in global memory: in words where each field has an
  // array of its own, in bits where they share a word.
  std::int64_t field_stride = 0;
  int field_bits = 0;
  // Copies of the class counters in shared memory, a power of two; 0 if outcomes go to global
  // memory at once.
  int shared_copies = 0;
  bool finish_separately = false;
  bool vectorized = false;  // four adjacent pixels lie in one aligned vector, for every class

  float* value = nullptr;
  std::int64_t values = 0;  // 0 without `value`
  CountsView counts;
  bool counts_are_added = true;     // or overwritten
  bool counts_elements = false;     // these are binary or multilabel, not class labels
  std::int64_t pooled_classes = 1;  // for the true negatives of pooled counts
  ErrorSlot* error = nullptr;
  std::int64_t call = 0;
  GridTotals* grid = nullptr;
  ScoreTotals* score_totals = nullptr;  // one for each k
  GroupTotals* group_totals = nullptr;
  ElementTotals* element_totals = nullptr;
  unsigned long long* class_totals = nullptr;

  // A single k is a list of one.
  SYNCFREE_HD int k_count() const { return top_ks.count > 0 ? top_ks.count : 1; }
  SYNCFREE_HD int k_at(int i) const { return top_ks.count > 0 ? top_ks.k[i] : top_k; }
  __device__ float* values_at(int i) const {
    return value + (top_ks.count > 0 ? top_ks.place[i] * (values / top_ks.count) : 0);
  }

  SYNCFREE_HD bool packs_fields() const { return field_bits != 0; }
  SYNCFREE_HD std::int64_t class_words() const { return packs_fields() ? slots : class_cells; }

  std::size_t shared_bytes() const { return sizeof(unsigned int) * shared_copies * class_cells; }

  // Index in the target's logical row-major order, and back.
  __device__ std::int64_t logical_index(std::int64_t group, std::int64_t element) const {
    return (element / adjacent * group_count + group) * adjacent + element % adjacent;
  }
  __device__ Offsets offsets_of(std::int64_t logical) const {
    const std::int64_t run = logical / adjacent;
    const Offsets group = groups(run % group_count);
    const Offsets element = elements(run / group_count * adjacent + logical % adjacent);
    return {group.preds + element.preds, group.target + element.target};
  }
};

// For the kernels that judge elements one by one.
inline constexpr int kElementThreads = 256;
inline constexpr int kElementBlocksPerMultiprocessor = 4;
inline constexpr int kElements = 4;      // of a thread, in flight together
inline constexpr int kLineElements = 8;  // likewise, where these lie one stride apart
// More loads in flight need more registers.
constexpr int column_blocks_per_multiprocessor(bool line) {
  return line ? 3 : kElementBlocksPerMultiprocessor;
}
// Bits of the word in which line_fraction.cu counts arrived blocks and right elements.
inline constexpr int kLineBlockBits = 12;
inline constexpr int kLineCountBits = 25;

// What a walk over the classes of a pixel finds.
enum class Walk : int { kPrediction, kRank, kBoth };

inline Walk walk_of(const CountJob& job) {
  if (job.tally != Tally::kRanks && job.top_k == 1) return Walk::kPrediction;
  return job.counts_false_positives ? Walk::kBoth : Walk::kRank;
}

// Blocks of the class walk that fit on a multiprocessor; the grid is one wave of them.
constexpr int walk_blocks_per_multiprocessor(std::size_t score_bytes, bool vectorized, Walk walk) {
  if (score_bytes == 8 || walk == Walk::kBoth) return 2;
  return vectorized && walk == Walk::kPrediction ? 4 : 3;
}

// For the kernel that stages rows in shared memory, 32 for each warp.
inline constexpr int kStagedRowThreads = 128;
inline constexpr int kStagedRowBlocksPerMultiprocessor = 8;

// Words for the rows of a warp, with a word of padding after each 32.
SYNCFREE_HD std::size_t staged_words(std::size_t row_bytes) {
  const std::size_t words = (32 * row_bytes + 3) / 4;
  return words + words / 32 + 1;
}

cudaError_t launch_staged_rows(const CountJob& job, cudaStream_t stream);
cudaError_t launch_rank_rows(const CountJob& job, cudaStream_t stream);
cudaError_t launch_argmax_rows(const CountJob& job, cudaStream_t stream);
cudaError_t launch_class_strided(const CountJob& job, cudaStream_t stream);
cudaError_t launch_label_counts(const CountJob& job, cudaStream_t stream);
cudaError_t launch_element_fractions(const CountJob& job, cudaStream_t stream);
cudaError_t launch_line_fraction(const CountJob& job, cudaStream_t stream);
cudaError_t launch_sample_fractions(const CountJob& job, cudaStream_t stream);
// Finishes the class counts of a single group.
cudaError_t launch_finish_classes(const CountJob& job, cudaStream_t stream);

}  // namespace syncfree::accuracy
