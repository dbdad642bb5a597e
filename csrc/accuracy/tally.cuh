// Outcomes of elements (right, wrong, left out): from threads to the result in one launch.
#pragma once

#include "accuracy/class_counts.cuh"
#include "core/early_launch.cuh"

namespace syncfree::accuracy {

// Called by one thread of a block: adds what the block counted to its group; the block that
// completes the group makes the result. `visited`: elements looked at, ignored and bad ones
// included.
__device__ __forceinline__ void close_fraction(const CountJob& job, std::int64_t group,
                                               unsigned long long correct, unsigned long long valid,
                                               unsigned long long visited) {
  const auto elements = static_cast<unsigned long long>(job.element_count);
  if (job.blocks_per_group > 1) {
    GroupTotals& totals = job.group_totals[group];
    if (job.rule.report && valid != visited) __threadfence();  // orders the block's bad labels
    if (elements <= kPackedMask) {
      const unsigned long long mine = visited << (2 * kPackedBits) | valid << kPackedBits | correct;
      const unsigned long long sum = atomicAdd(&totals.correct, mine) + mine;
      if (sum >> (2 * kPackedBits) != elements) return;
      totals.correct = 0;
      correct = sum & kPackedMask;
      valid = sum >> kPackedBits & kPackedMask;
    } else {
      atomicAdd(&totals.correct, correct);
      atomicAdd(&totals.valid, valid);
      if (!is_last_arrival(&totals.ticket, 1, job.blocks_per_group)) return;
      correct = atomicExch(&totals.correct, 0ull);
      valid = atomicExch(&totals.valid, 0ull);
    }
  }
  bool bad = false;
  if (job.group_count == 1 && job.rule.report && valid != elements) {
    __threadfence();
    bad = publish_bad_labels(job);
  }
  if (job.counts.wanted()) hand_over_pooled(job, group, correct, valid);
  if (job.value != nullptr)
    job.value[group] = bad ? __int_as_float(0x7fffffff) : safe_fraction(correct, valid);
}

// How many of `count` elements, handed out in tiles by turns, the `turn`-th of `turns` blocks gets.
__device__ inline std::int64_t share_of(std::int64_t count, std::int64_t tile, std::int64_t turn,
                                        std::int64_t turns) {
  const std::int64_t tiles = divide(count + tile - 1, tile);
  const std::int64_t before_last = divide(tiles - 1, turns);
  const bool has_last = tiles - 1 - before_last * turns == turn;
  const std::int64_t mine = divide(tiles - turn + turns - 1, turns);
  return mine * tile - (has_last ? tiles * tile - count : 0);
}

// A block's outcomes: a fraction in registers, or class counters in shared or global memory.
template <int kThreads>
class BlockTally {
 public:
  // Before the kernel's first access to memory.
  __device__ BlockTally(const CountJob& job, unsigned int* shared) : job_(job), shared_(shared) {
    wait_for_kernel_ahead();
    if (job.finish_separately) let_next_kernel_start();
  }

  // Block-wide, before the first outcome of a group.
  __device__ void open() {
    correct_ = valid_ = 0;
    if (job_.tally == Tally::kFraction) return;
    __syncthreads();  // those of the previous group have been read and cleared
    if (job_.shared_copies == 0) return;
    const auto cells = static_cast<unsigned int>(job_.class_cells);
    for (unsigned int i = threadIdx.x; i < cells * job_.shared_copies; i += kThreads)
      shared_[i] = 0;
    __syncthreads();
  }

  // `ahead` classes are ahead of the target's.
  __device__ void add_rank(std::int64_t group, unsigned int ahead, std::int64_t target,
                           std::int64_t predicted) {
    if (job_.tally == Tally::kRanks) {
      const TopKList& top_ks = job_.top_ks;
      count(group, top_ks.misses(ahead), job_.slots == 1 ? 0 : target);
      if (ahead != 0 && job_.counts_false_positives) count(group, top_ks.count + 1, predicted);
    } else {
      add(group, ahead < static_cast<unsigned int>(job_.top_k), target, predicted);
    }
  }

  // For all tallies but Tally::kRanks.
  __device__ void add(std::int64_t group, bool correct, std::int64_t target,
                      std::int64_t predicted) {
    ++valid_;
    correct_ += correct;
    if (job_.tally == Tally::kClasses) {
      count(group, correct ? kTruePositive : kFalseNegative, target);
      if (!correct && job_.counts_false_positives) count(group, kFalsePositive, predicted);
    }
  }

  // Whether an element with this target is to be scored. Of the threads that share the element,
  // only the one that `speaks` rejects a bad target.
  __device__ bool admit(std::int64_t group, std::int64_t element, std::int64_t target,
                        bool speaks = true) {
    const LabelState state = job_.rule.judge_target(target);
    if (speaks && state == LabelState::kBad) reject(group, element, ErrorKind::kTargetOutOfRange);
    return state == LabelState::kValid;
  }

  __device__ void reject(std::int64_t group, std::int64_t element, ErrorKind kind) {
    if (job_.rule.report) {
      report_bad_label(job_, group, element, kind);
    } else if (job_.rule.bad_is_wrong) {
      if (job_.tally == Tally::kRanks)
        count(group, job_.top_ks.count, 0);
      else
        ++valid_;
    }
  }

  __device__ void count(std::int64_t group, int field, std::int64_t c) {
    if (job_.shared_copies > 0) {
      const unsigned int copy = threadIdx.x / 32 & (job_.shared_copies - 1);
      const auto cell = static_cast<unsigned int>(field * job_.slots + c);
      atomicAdd(shared_ + copy * static_cast<unsigned int>(job_.class_cells) + cell, 1u);
    } else {
      add_to_class(job_, class_totals(job_, group), field, c, 1);
    }
  }

  // Block-wide, after the last outcome of the block's share of the group, which has `visited()`
  // elements. kOneThread: thread 0 alone has counted.
  template <bool kOneThread = false, class Visited>
  __device__ void close(std::int64_t group, Visited&& visited) {
    const bool by_class = job_.tally != Tally::kFraction;
    unsigned long long sums = static_cast<unsigned long long>(valid_) << 32 | correct_;
    if (!kOneThread && (!by_class || job_.counts.wanted())) {
      using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
      __shared__ typename Reduce::TempStorage storage;
      __syncthreads();
      sums = Reduce(storage).Sum(sums);
    }
    if (by_class)
      close_classes<kThreads>(job_, shared_, group, sums >> 32);
    else if (threadIdx.x == 0)
      close_fraction(job_, group, sums & 0xffffffffu, sums >> 32,
                     static_cast<unsigned long long>(visited()));
  }

 private:
  const CountJob& job_;
  unsigned int* shared_;
  unsigned int correct_ = 0;
  unsigned int valid_ = 0;
};

// At the end of a kernel over several groups: a bad label in one of them makes all values NaN.
__device__ inline void finish_groups(const CountJob& job) {
  if (job.group_count == 1 || !job.rule.report) return;
  if (!is_last_block(&job.grid->ticket, gridDim.x)) return;
  __shared__ bool bad;
  if (threadIdx.x == 0) bad = publish_bad_labels(job);
  __syncthreads();
  spoil_values(job, bad);
}

}  // namespace syncfree::accuracy
