// Outcomes of rows and pixels, from a thread's counters to the result, in one launch.
#pragma once

#include <cub/block/block_reduce.cuh>

#include "accuracy/labels.cuh"
#include "core/last_block.cuh"

namespace syncfree::accuracy {

struct ClassCounts {
  unsigned long long tp = 0, fn = 0, fp = 0;
};

// Group sizes up to this fit three counters into one word, whose single atomic is total and ticket
// at once: a launch of a few microseconds notices each further round trip to L2.
inline constexpr int kPackedBits = 21;
inline constexpr unsigned long long kPackedMask = (1ull << kPackedBits) - 1;

// One thread of a block adds what its block counted; whoever completes the group writes its value.
// `visited` elements of the group were looked at, ignored and bad ones included.
__device__ __noinline__ inline void close_fraction(const CountJob& job, std::int64_t group,
                                                   unsigned long long correct,
                                                   unsigned long long valid,
                                                   unsigned long long visited) {
  const auto elements = static_cast<unsigned long long>(job.element_count);
  if (job.blocks_per_group > 1) {
    GroupTotals& totals = job.group_totals[group];
    if (job.rule.report && valid != visited) __threadfence();  // behind the block's bad labels
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
      __threadfence();
      if (atomicInc(&totals.ticket, job.blocks_per_group - 1) != job.blocks_per_group - 1) return;
      __threadfence();
      correct = atomicExch(&totals.correct, 0ull);
      valid = atomicExch(&totals.valid, 0ull);
    }
  }
  bool bad = false;
  if (job.group_count == 1 && job.rule.report && valid != elements) {
    __threadfence();
    bad = publish_bad_labels(job);
  }
  job.value[group] = bad ? __int_as_float(0x7fffffff) : safe_fraction(correct, valid);
}

// Class counts, which `take(class)` hands over, become values of their own or parts of a mean.
template <int kThreads>
struct ClassAverage {
  unsigned long long sum = 0;
  unsigned long long count = 0;

  template <class Take>
  __device__ void add(const CountJob& job, std::int64_t group, std::int64_t first,
                      std::int64_t step, Take&& take) {
    const int shift = fixed_point_shift(static_cast<std::uint64_t>(job.classes));
    for (std::int64_t c = first; c < job.classes; c += step) {
      const ClassCounts counts = take(c);
      const unsigned long long support = counts.tp + counts.fn;
      if (job.average == Average::kNone) {
        job.value[group * job.classes + c] = safe_fraction(counts.tp, support);
      } else if (class_takes_part(counts.tp, counts.fp, counts.fn, job.top_k)) {
        sum += weighted_fraction(1, counts.tp, support, shift);
        ++count;
      }
    }
  }

  // The totals of the block, valid in thread 0.
  __device__ void reduce() {
    using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __syncthreads();
    sum = Reduce(storage).Sum(sum);
    __syncthreads();
    count = Reduce(storage).Sum(count);
  }

  __device__ float mean(const CountJob& job) const {
    return mean_of_fractions(sum, count,
                             fixed_point_shift(static_cast<std::uint64_t>(job.classes)));
  }
};

// Takes the counts of class `c` out of global memory, past the L1 cache, and leaves zeros.
__device__ inline ClassCounts take_class(const CountJob& job, unsigned long long* totals,
                                         std::int64_t c) {
  const auto take = [&](ClassField field) {
    unsigned long long* slot = totals + field * job.classes + c;
    const unsigned long long count = __ldcg(slot);
    if (count != 0) *slot = 0;
    return count;
  };
  ClassCounts counts;
  counts.tp = take(kTruePositive);
  counts.fn = take(kFalseNegative);
  if (job.counts_false_positives) counts.fp = take(kFalsePositive);
  return counts;
}

// All threads of the block whose writes to `value` come last.
__device__ inline void spoil_values(const CountJob& job, bool bad) {
  if (!bad) return;
  for (std::int64_t i = threadIdx.x; i < job.values; i += blockDim.x)
    job.value[i] = __int_as_float(0x7fffffff);
}

__device__ inline unsigned long long* class_totals(const CountJob& job, std::int64_t group) {
  const std::int64_t slot = job.blocks_per_group > 1 ? group : blockIdx.x;
  return job.class_totals + slot * job.class_cells;
}

// The sum of a cell over the copies in shared memory.
__device__ inline unsigned int shared_count(const CountJob& job, const unsigned int* shared,
                                            unsigned int cell) {
  unsigned int sum = 0;
  for (int copy = 0; copy < job.shared_copies; ++copy) sum += shared[copy * job.class_cells + cell];
  return sum;
}

__device__ inline ClassCounts shared_class(const CountJob& job, const unsigned int* shared,
                                           unsigned int c) {
  const auto classes = static_cast<unsigned int>(job.classes);
  ClassCounts counts;
  counts.tp = shared_count(job, shared, kTruePositive * classes + c);
  counts.fn = shared_count(job, shared, kFalseNegative * classes + c);
  if (job.counts_false_positives)
    counts.fp = shared_count(job, shared, kFalsePositive * classes + c);
  return counts;
}

// Block-wide: hands the block's class counters on; whoever completes the group writes its values.
template <int kThreads>
__device__ __noinline__ void close_classes(const CountJob& job, const unsigned int* shared,
                                           std::int64_t group) {
  __syncthreads();
  const bool alone = job.blocks_per_group == 1;
  unsigned long long* totals = class_totals(job, group);
  if (job.shared_copies > 0 && !alone) {
    for (unsigned int cell = threadIdx.x; cell < job.class_cells; cell += kThreads) {
      const unsigned int sum = shared_count(job, shared, cell);
      if (sum != 0) atomicAdd(totals + cell, static_cast<unsigned long long>(sum));
    }
  }
  if (job.finish_separately) return;
  if (!alone && !is_last_block(&job.group_totals[group].ticket, job.blocks_per_group)) return;

  const bool in_shared = job.shared_copies > 0 && alone;
  ClassAverage<kThreads> average;
  average.add(job, group, threadIdx.x, kThreads, [&](std::int64_t c) {
    return in_shared ? shared_class(job, shared, static_cast<unsigned int>(c))
                     : take_class(job, totals, c);
  });
  if (job.average == Average::kMacro) {
    average.reduce();
    if (threadIdx.x == 0) job.value[group] = average.mean(job);
  }
  if (job.group_count == 1 && job.rule.report) {
    __shared__ bool bad;
    __syncthreads();
    if (threadIdx.x == 0) bad = publish_bad_labels(job);
    __syncthreads();
    spoil_values(job, bad);
  }
}

// How many of `count` elements, handed out in tiles by turns, the `turn`-th of `turns` blocks gets.
__device__ inline std::int64_t share_of(std::int64_t count, std::int64_t tile, std::int64_t turn,
                                        std::int64_t turns) {
  const std::int64_t tiles = quotient(count + tile - 1, tile);
  const std::int64_t before_last = quotient(tiles - 1, turns);
  const bool has_last = tiles - 1 - before_last * turns == turn;
  const std::int64_t mine = quotient(tiles - turn + turns - 1, turns);
  return mine * tile - (has_last ? tiles * tile - count : 0);
}

// A block's outcomes: a fraction in registers, or class counters in shared or global memory.
template <int kThreads>
class BlockTally {
 public:
  __device__ BlockTally(const CountJob& job, unsigned int* shared) : job_(job), shared_(shared) {}

  // Block-wide, before the first outcome of a group.
  __device__ void open() {
    correct_ = valid_ = 0;
    if (job_.tally == Tally::kFraction) return;
    __syncthreads();  // the counters of the group before are read and cleared
    if (job_.shared_copies == 0) return;
    const auto cells = static_cast<unsigned int>(job_.class_cells);
    for (unsigned int i = threadIdx.x; i < cells * job_.shared_copies; i += kThreads)
      shared_[i] = 0;
    __syncthreads();
  }

  __device__ void add(std::int64_t group, bool correct, std::int64_t target,
                      std::int64_t predicted) {
    if (job_.tally == Tally::kFraction) {
      ++valid_;
      correct_ += correct;
    } else {
      count(group, correct ? kTruePositive : kFalseNegative, target);
      if (!correct && job_.counts_false_positives) count(group, kFalsePositive, predicted);
    }
  }

  // Whether an element with this target is to be scored. Of the threads that share the element, one
  // `speaks` and settles it otherwise.
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
      ++valid_;
    }
  }

  __device__ void count(std::int64_t group, ClassField field, std::int64_t c) {
    if (job_.shared_copies > 0) {
      const unsigned int copy = threadIdx.x / 32 & (job_.shared_copies - 1);
      const auto cell = static_cast<unsigned int>(field * job_.classes + c);
      atomicAdd(shared_ + copy * static_cast<unsigned int>(job_.class_cells) + cell, 1u);
    } else {
      atomicAdd(class_totals(job_, group) + field * job_.classes + c, 1ull);
    }
  }

  // Block-wide, after the last outcome of the block's share of the group, `visited` elements of it.
  // kOneThread: thread 0 alone has counted.
  template <bool kOneThread = false>
  __device__ void close(std::int64_t group, std::int64_t visited) {
    if (job_.tally == Tally::kClasses) {
      close_classes<kThreads>(job_, shared_, group);
      return;
    }
    unsigned long long sums = static_cast<unsigned long long>(valid_) << 32 | correct_;
    if constexpr (!kOneThread) {
      using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
      __shared__ typename Reduce::TempStorage storage;
      __syncthreads();
      sums = Reduce(storage).Sum(sums);
    }
    if (threadIdx.x == 0)
      close_fraction(job_, group, sums & 0xffffffffu, sums >> 32,
                     static_cast<unsigned long long>(visited));
  }

 private:
  const CountJob& job_;
  unsigned int* shared_;
  unsigned int correct_ = 0;
  unsigned int valid_ = 0;
};

// The end of a kernel over several groups: a bad label in one of them spoils them all.
__device__ inline void finish_groups(const CountJob& job) {
  if (job.group_count == 1 || !job.rule.report) return;
  if (!is_last_block(&job.grid->ticket, gridDim.x)) return;
  __shared__ bool bad;
  if (threadIdx.x == 0) bad = publish_bad_labels(job);
  __syncthreads();
  spoil_values(job, bad);
}

}  // namespace syncfree::accuracy
