// The fraction of a line of scores, binary or of all labels together, where nothing else is wanted.
//
// The way from the last score to the value is a good part of the few microseconds of such a call.
// Here it is one atomic addition, which delivers a block's counts, tells whether they were the last
// ones, and returns the totals.
#include <cuda/atomic>

#include "accuracy/element_judge.cuh"
#include "accuracy/launch_job.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = kElementThreads;

// A word holds how many blocks arrived, how many elements are right by each bound, and two marks.
constexpr int kLogitShift = kLineBlockBits + kLineCountBits;
constexpr unsigned long long kBlockMask = (1ull << kLineBlockBits) - 1;
constexpr unsigned long long kCountMask = (1ull << kLineCountBits) - 1;
constexpr unsigned long long kOutside = 1ull << 62;  // a score lay outside [0, 1]
constexpr unsigned long long kLeftOut = 1ull << 63;  // an element was bad
static_assert(kLogitShift + kLineCountBits == 62);

struct LineSums {
  unsigned int probability_correct, logit_correct, left_out, outside;
};

__device__ LineSums operator+(const LineSums& a, const LineSums& b) {
  return {a.probability_correct + b.probability_correct, a.logit_correct + b.logit_correct,
          a.left_out + b.left_out, a.outside + b.outside};
}

// By one thread of each block.
__device__ void close_line(const CountJob& job, const LineSums& sums) {
  ElementTotals& totals = *job.element_totals;
  const cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> word(
      totals.probability_correct);
  unsigned long long marks = sums.outside != 0 ? kOutside : 0;
  if (sums.left_out != 0) {
    atomicAdd(&totals.valid, static_cast<unsigned long long>(sums.left_out));
    __threadfence();  // orders the block's bad labels, too
    marks |= kLeftOut;
  }
  // The operations of one thread on one word stay in order: the marks are there before the counts.
  if (marks != 0) word.fetch_or(marks, cuda::memory_order_relaxed);
  const unsigned long long mine =
      1ull | static_cast<unsigned long long>(sums.probability_correct) << kLineBlockBits |
      static_cast<unsigned long long>(sums.logit_correct) << kLogitShift;
  const unsigned long long all = word.fetch_add(mine, cuda::memory_order_relaxed) + mine;
  if ((all & kBlockMask) != gridDim.x) return;
  word.store(0, cuda::memory_order_relaxed);  // for the next launch
  auto valid = static_cast<unsigned long long>(job.element_count);
  bool bad = false;
  if (all & kLeftOut) {
    __threadfence();
    valid -= __ldcg(&totals.valid);
    totals.valid = 0;
    bad = job.rule.report && publish_bad_labels(job);
  }
  const unsigned long long correct = all >> (all & kOutside ? kLogitShift : kLineBlockBits);
  *job.value = bad ? __int_as_float(0x7fffffff) : safe_fraction(correct & kCountMask, valid);
}

template <class T>
__global__ void __launch_bounds__(kThreads, column_blocks_per_multiprocessor(true))
    line_fraction(const __grid_constant__ CountJob job) {
  wait_for_kernel_ahead();
  ElementJudge<T> judge(job, 0);
  judge.judge_line({}, static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                   static_cast<std::int64_t>(gridDim.x) * kThreads);
  using Reduce = cub::BlockReduce<LineSums, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const LineSums sums =
      Reduce(storage).Sum({judge.counts.probability_correct, judge.counts.logit_correct,
                           judge.visited - judge.counts.valid, judge.outside});
  if (threadIdx.x == 0) close_line(job, sums);
}

}  // namespace

cudaError_t launch_line_fraction(const CountJob& job, cudaStream_t stream) {
  return dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
    return launch_job(line_fraction<typename decltype(tag)::type>, kThreads, 0, stream, job);
  });
}

}  // namespace syncfree::accuracy
