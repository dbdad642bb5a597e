// Counters of classes, from a block's to what is made of them.
#pragma once

#include <cub/block/block_reduce.cuh>

#include "accuracy/hand_over.cuh"
#include "accuracy/labels.cuh"
#include "core/last_block.cuh"

namespace syncfree::accuracy {

struct ClassCounts {
  unsigned long long tp = 0, fn = 0, fp = 0;
};

// Class counts, which `take(class)` gives, are handed over, and become values of their own or parts
// of a mean.
template <int kThreads>
struct ClassAverage {
  unsigned long long sum = 0;
  unsigned long long count = 0;

  // For the `i`-th k. `counted` elements are in the group.
  template <class Take>
  __device__ void add(const CountJob& job, int i, std::int64_t group, unsigned long long counted,
                      std::int64_t first, std::int64_t step, Take&& take) {
    const int shift = fixed_point_shift(static_cast<std::uint64_t>(job.slots));
    const int k = job.k_at(i);
    float* values = job.values_at(i);
    for (std::int64_t c = first; c < job.slots; c += step) {
      const ClassCounts counts = take(c);
      const unsigned long long support = counts.tp + counts.fn;
      const std::int64_t place = group * job.slots + c;
      if (job.counts.wanted())
        hand_over(job, place, counts.tp, counts.fp, counted - support - counts.fp, counts.fn);
      if (job.value == nullptr) continue;
      if (job.average == Average::kNone) {
        values[place] = safe_fraction(counts.tp, support);
      } else if (is_fraction(job)) {
        sum += counts.tp;
        count += support;
      } else if (class_takes_part(counts.tp, counts.fp, counts.fn, k)) {
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
    if (is_fraction(job)) return safe_fraction(sum, count);
    return mean_of_fractions(sum, count, fixed_point_shift(static_cast<std::uint64_t>(job.slots)));
  }

 private:
  static __device__ bool is_fraction(const CountJob& job) { return job.average != Average::kMacro; }
};

__device__ inline bool averages_classes(const CountJob& job) {
  return job.value != nullptr && job.average != Average::kNone;
}

// Takes the counts of class `c` out of global memory, past the L1 cache, and leaves zeros.
__device__ inline ClassCounts take_class(const CountJob& job, unsigned long long* totals,
                                         std::int64_t c) {
  const auto take = [&](ClassField field) {
    unsigned long long* slot = totals + field * job.slots + c;
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
  const auto slots = static_cast<unsigned int>(job.slots);
  ClassCounts counts;
  counts.tp = shared_count(job, shared, kTruePositive * slots + c);
  counts.fn = shared_count(job, shared, kFalseNegative * slots + c);
  if (job.counts_false_positives) counts.fp = shared_count(job, shared, kFalsePositive * slots + c);
  return counts;
}

// Of the `i`-th of several k: rows that miss no further ones are right. `read(cell)` gives a
// counter and leaves it, since every k asks for it.
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

// Leaves zeros where `class_at_k` has read classes of the same thread.
__device__ inline void clear_classes(const CountJob& job, unsigned long long* totals,
                                     std::int64_t first, std::int64_t step) {
  for (std::int64_t c = first; c < job.slots; c += step)
    for (std::int64_t cell = c; cell < job.class_cells; cell += job.slots) totals[cell] = 0;
}

// Block-wide: the values of a group for each of several k, from its counters in shared memory, or
// in `totals` if there are none.
template <int kThreads>
__device__ __noinline__ void average_ranks(const CountJob& job, const unsigned int* shared,
                                           unsigned long long* totals, std::int64_t group) {
  for (int i = 0; i < job.top_ks.count; ++i) {
    ClassAverage<kThreads> average;
    average.add(job, i, group, 0, threadIdx.x, kThreads, [&](std::int64_t c) {
      return class_at_k(job, i, c, [&](std::int64_t cell) -> unsigned long long {
        return shared != nullptr ? shared_count(job, shared, static_cast<unsigned int>(cell))
                                 : __ldcg(totals + cell);
      });
    });
    if (averages_classes(job)) {
      average.reduce();
      if (threadIdx.x == 0) job.values_at(i)[group] = average.mean(job);
    }
  }
  if (shared == nullptr) clear_classes(job, totals, threadIdx.x, kThreads);
}

// Block-wide: passes the block's class counters on; whoever completes the group hands them over.
// `counted` elements are in them, as thread 0 knows where counts are wanted.
template <int kThreads>
__device__ __noinline__ void close_classes(const CountJob& job, const unsigned int* shared,
                                           std::int64_t group, unsigned long long counted) {
  __shared__ unsigned long long of_group;
  __syncthreads();
  const bool alone = job.blocks_per_group == 1;
  unsigned long long* totals = class_totals(job, group);
  if (job.counts.wanted() && threadIdx.x == 0) {
    if (job.finish_separately)
      atomicAdd(&job.grid->counted, counted);
    else if (alone)
      of_group = counted;
    else
      atomicAdd(&job.group_totals[group].valid, counted);
  }
  if (job.shared_copies > 0 && !alone) {
    for (unsigned int cell = threadIdx.x; cell < job.class_cells; cell += kThreads) {
      const unsigned int sum = shared_count(job, shared, cell);
      if (sum != 0) atomicAdd(totals + cell, static_cast<unsigned long long>(sum));
    }
  }
  if (job.finish_separately) return;
  if (!alone && !is_last_block(&job.group_totals[group].ticket, job.blocks_per_group)) return;
  if (job.counts.wanted()) {
    if (!alone && threadIdx.x == 0) of_group = atomicExch(&job.group_totals[group].valid, 0ull);
    __syncthreads();
  }

  const bool in_shared = job.shared_copies > 0 && alone;
  if (job.tally == Tally::kRanks) {
    average_ranks<kThreads>(job, in_shared ? shared : nullptr, totals, group);
  } else {
    ClassAverage<kThreads> average;
    average.add(job, 0, group, of_group, threadIdx.x, kThreads, [&](std::int64_t c) {
      return in_shared ? shared_class(job, shared, static_cast<unsigned int>(c))
                       : take_class(job, totals, c);
    });
    if (averages_classes(job)) {
      average.reduce();
      if (threadIdx.x == 0) job.value[group] = average.mean(job);
    }
  }
  if (job.group_count == 1 && job.rule.report) {
    __shared__ bool bad;
    __syncthreads();
    if (threadIdx.x == 0) bad = publish_bad_labels(job);
    __syncthreads();
    spoil_values(job, bad);
  }
}

}  // namespace syncfree::accuracy
