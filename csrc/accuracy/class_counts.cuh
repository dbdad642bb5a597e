// Class counters, on their way from a block to averages and a metric's states.
#pragma once

#include <cub/block/block_reduce.cuh>

#include "accuracy/hand_over.cuh"
#include "accuracy/labels.cuh"
#include "core/last_block.cuh"

namespace syncfree::accuracy {

struct ClassCounts {
  unsigned long long tp = 0, fn = 0, fp = 0;
};

// Consumes class counts, class by class: hands them over, stores a value for each class, or sums up
// the terms of a mean.
template <int kThreads>
class ClassAverage {
 public:
  // Takes one class of a group of `counted` elements: hands its counts over and, for the `i`-th k,
  // stores its value or adds it to the mean.
  __device__ __forceinline__ void meet(const CountJob& job, int i, std::int64_t group,
                                       unsigned long long counted, std::int64_t c,
                                       const ClassCounts& counts) {
    const unsigned long long support = counts.tp + counts.fn;
    const std::int64_t place = group * job.slots + c;
    if (job.counts.wanted())
      hand_over(job, place, counts.tp, counts.fp, counted - support - counts.fp, counts.fn);
    if (job.value == nullptr) return;
    if (job.average == Average::kNone) {
      job.values_at(i)[place] = safe_fraction(counts.tp, support);
    } else if (is_fraction(job)) {
      parts_.sum += counts.tp;
      parts_.count += support;
    } else if (class_takes_part(counts.tp, counts.fp, counts.fn, job.k_at(i))) {
      // Most classes of a batch are all wrong or all right, which needs no division.
      if (counts.fn == 0 && counts.tp != 0)
        parts_.sum += 1ull << job.mean_shift;
      else if (counts.tp != 0)
        parts_.sum += weighted_fraction(1, counts.tp, support, job.mean_shift);
      ++parts_.count;
    }
  }

  // Sums over the block; valid in thread 0.
  __device__ void reduce() {
    using Reduce = cub::BlockReduce<Parts, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __syncthreads();
    parts_ = Reduce(storage).Sum(parts_);
  }

  // By one thread: add to the totals of several blocks; read the totals and leave zeros.
  __device__ void add_to(ScoreTotals& totals) const {
    atomicAdd(&totals.sum, parts_.sum);
    atomicAdd(&totals.count, parts_.count);
  }
  __device__ void take_from(ScoreTotals& totals) {
    parts_ = {__ldcg(&totals.sum), __ldcg(&totals.count)};
    totals = {};
  }

  __device__ float mean(const CountJob& job) const {
    if (is_fraction(job)) return safe_fraction(parts_.sum, parts_.count);
    return mean_of_fractions(parts_.sum, parts_.count, job.mean_shift);
  }

 private:
  struct Parts {
    unsigned long long sum = 0;
    unsigned long long count = 0;

    __device__ Parts operator+(const Parts& other) const {
      return {sum + other.sum, count + other.count};
    }
  };

  static __device__ bool is_fraction(const CountJob& job) { return job.average != Average::kMacro; }

  Parts parts_;
};

__device__ inline bool averages_classes(const CountJob& job) {
  return job.value != nullptr && job.average != Average::kNone;
}

// Adds to a counter in global memory.
__device__ inline void add_to_class(const CountJob& job, unsigned long long* totals, int field,
                                    std::int64_t c, unsigned long long count) {
  atomicAdd(totals + field * job.field_stride + c, count << (field * job.field_bits));
}

// Takes the counts of classes `step` apart from global memory, bypassing the L1 cache, and leaves
// zeros. Calls `meet(class, counts)`.
template <class Meet>
__device__ __forceinline__ void take_classes(const CountJob& job, unsigned long long* totals,
                                             std::int64_t first, std::int64_t step, Meet&& meet) {
  if (job.packs_fields()) {
    constexpr int kInFlight = 8;  // a round trip to L2 outlasts the work on several classes
#pragma unroll 1
    for (std::int64_t c = first; c < job.slots;) {
      unsigned long long words[kInFlight] = {};
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        if (c + i * step < job.slots) words[i] = __ldcg(totals + c + i * step);
      // One loop body, not unrolled: the block is the first to run this code, which is in no cache.
#pragma unroll 1
      for (int left = kInFlight; left > 0 && c < job.slots; --left, c += step) {
        const unsigned long long word = words[0];
#pragma unroll
        for (int i = 1; i < kInFlight; ++i) words[i - 1] = words[i];
        if (word != 0) totals[c] = 0;
        meet(c, ClassCounts{word & kPackedMask, word >> kPackedBits & kPackedMask,
                            word >> 2 * kPackedBits});
      }
    }
    return;
  }
#pragma unroll 1
  for (std::int64_t c = first; c < job.slots; c += step) {
    unsigned long long* slot = totals + c;
    ClassCounts counts;
    counts.tp = __ldcg(slot + kTruePositive * job.slots);
    counts.fn = __ldcg(slot + kFalseNegative * job.slots);
    if (job.counts_false_positives) counts.fp = __ldcg(slot + kFalsePositive * job.slots);
    for (std::int64_t cell = 0; cell < job.class_cells; cell += job.slots) slot[cell] = 0;
    meet(c, counts);
  }
}

// Sets all values to NaN. Called by all threads of the block whose writes to `value` come last.
__device__ inline void spoil_values(const CountJob& job, bool bad) {
  if (!bad) return;
  for (std::int64_t i = threadIdx.x; i < job.values; i += blockDim.x)
    job.value[i] = __int_as_float(0x7fffffff);
}

__device__ inline unsigned long long* class_totals(const CountJob& job, std::int64_t group) {
  const std::int64_t slot = job.blocks_per_group > 1 ? group : blockIdx.x;
  return job.class_totals + slot * job.class_words();
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
  const auto slots = static_cast<unsigned int>(job.slots);
  ClassCounts counts;
  counts.tp = shared_count(job, shared, kTruePositive * slots + c);
  counts.fn = shared_count(job, shared, kFalseNegative * slots + c);
  if (job.counts_false_positives) counts.fp = shared_count(job, shared, kFalsePositive * slots + c);
  return counts;
}

// The counts of a class for the `i`-th of several k: rows that miss the `i` smaller ones alone are
// right. `read(cell)` leaves the counter as it is, since every k reads it.
template <class Read>
__device__ ClassCounts class_at_k(const CountJob& job, int i, std::int64_t c, Read&& read) {
  ClassCounts counts;
#pragma unroll 1
  for (int misses = 0; misses <= job.top_ks.count; ++misses) {
    const unsigned long long rows = read(misses * job.slots + c);
    (misses <= i ? counts.tp : counts.fn) += rows;
  }
  if (job.counts_false_positives) counts.fp = read((job.top_ks.count + 1) * job.slots + c);
  return counts;
}

// Clears the counters of classes that the same thread has read with `class_at_k`.
__device__ inline void clear_classes(const CountJob& job, unsigned long long* totals,
                                     std::int64_t first, std::int64_t step) {
  for (std::int64_t c = first; c < job.slots; c += step)
    for (std::int64_t cell = c; cell < job.class_cells; cell += job.slots) totals[cell] = 0;
}

// Calls `meet(class, counts)` for classes `step` apart, for the `i`-th of several k.
template <class Read, class Meet>
__device__ __forceinline__ void meet_classes_at_k(const CountJob& job, int i, std::int64_t first,
                                                  std::int64_t step, Read&& read, Meet&& meet) {
#pragma unroll 1
  for (std::int64_t c = first; c < job.slots; c += step) meet(c, class_at_k(job, i, c, read));
}

// Block-wide: the values of a group for each of several k, from its counters in shared memory, or
// in `totals` if `shared` is null.
template <int kThreads>
__device__ __forceinline__ void average_ranks(const CountJob& job, const unsigned int* shared,
                                              unsigned long long* totals, std::int64_t group) {
#pragma unroll 1
  for (int i = 0; i < job.top_ks.count; ++i) {
    ClassAverage<kThreads> average;
    meet_classes_at_k(
        job, i, threadIdx.x, kThreads,
        [&](std::int64_t cell) -> unsigned long long {
          return shared != nullptr ? shared_count(job, shared, static_cast<unsigned int>(cell))
                                   : __ldcg(totals + cell);
        },
        [&](std::int64_t c, const ClassCounts& counts) {
          average.meet(job, i, group, 0, c, counts);
        });
    if (averages_classes(job)) {
      average.reduce();
      if (threadIdx.x == 0) job.values_at(i)[group] = average.mean(job);
    }
  }
  if (shared == nullptr) clear_classes(job, totals, threadIdx.x, kThreads);
}

// Block-wide: adds the block's counters to those of its group.
template <int kThreads>
__device__ __forceinline__ void flush_classes(const CountJob& job, const unsigned int* shared,
                                              unsigned long long* totals) {
  if (job.packs_fields()) {
    for (std::int64_t c = threadIdx.x; c < job.slots; c += kThreads) {
      const ClassCounts counts = shared_class(job, shared, static_cast<unsigned int>(c));
      const unsigned long long word =
          counts.fp << 2 * kPackedBits | counts.fn << kPackedBits | counts.tp;
      if (word != 0) atomicAdd(totals + c, word);
    }
  } else {
    for (unsigned int cell = threadIdx.x; cell < job.class_cells; cell += kThreads) {
      const unsigned int sum = shared_count(job, shared, cell);
      if (sum != 0) atomicAdd(totals + cell, static_cast<unsigned long long>(sum));
    }
  }
}

// Block-wide: adds the block's class counters to those of its group; the block that completes the
// group finishes it. `counted`: the elements that the block counted, valid in thread 0 where counts
// are wanted. Always inlined, so that the kernel's parameters are read from constant memory; a
// function of its own would read them from global memory, one after another.
template <int kThreads>
__device__ __forceinline__ void close_classes(const CountJob& job, const unsigned int* shared,
                                              std::int64_t group, unsigned long long counted) {
  __shared__ unsigned long long of_block;
  const bool alone = job.blocks_per_group == 1;
  unsigned long long* totals = class_totals(job, group);
  if (job.counts.wanted() && threadIdx.x == 0) {
    if (job.finish_separately)
      atomicAdd(&job.grid->counted, counted);
    else if (alone)
      of_block = counted;
    else
      atomicAdd(&job.group_totals[group].valid, counted);
  }
  if (alone || job.shared_copies > 0) __syncthreads();
  if (job.shared_copies > 0 && !alone) flush_classes<kThreads>(job, shared, totals);
  if (job.finish_separately) return;
  if (!alone && !is_last_block(&job.group_totals[group].ticket, job.blocks_per_group)) return;

  // Loaded early: their latency is hidden behind that of the counters.
  const bool reports = job.group_count == 1 && job.rule.report;
  const unsigned long long bad_labels = reports ? __ldcg(&job.grid->bad_labels) : 0;
  if (job.counts.wanted()) counted = alone ? of_block : __ldcg(&job.group_totals[group].valid);

  const bool in_shared = job.shared_copies > 0 && alone;
  if (job.tally == Tally::kRanks) {
    average_ranks<kThreads>(job, in_shared ? shared : nullptr, totals, group);
  } else {
    ClassAverage<kThreads> average;
    const auto meet = [&](std::int64_t c, const ClassCounts& counts) {
      average.meet(job, 0, group, counted, c, counts);
    };
    if (in_shared) {
#pragma unroll 1
      for (std::int64_t c = threadIdx.x; c < job.slots; c += kThreads)
        meet(c, shared_class(job, shared, static_cast<unsigned int>(c)));
    } else {
      take_classes(job, totals, threadIdx.x, kThreads, meet);
    }
    if (averages_classes(job)) {
      average.reduce();
      if (threadIdx.x == 0) job.value[group] = average.mean(job);
    }
  }
  if (job.counts.wanted() && !alone) {
    __syncthreads();  // all have read it
    if (threadIdx.x == 0) job.group_totals[group].valid = 0;
  }
  if (bad_labels != 0) {
    __syncthreads();  // values are written, and all have read the count
    if (threadIdx.x == 0) publish_bad_labels(job);
    spoil_values(job, true);
  }
}

}  // namespace syncfree::accuracy
