// The target's rank in contiguous rows of scores: leaves a row once top_k classes beat the target.
#include "accuracy/launch_job.cuh"
#include "accuracy/row_walk.cuh"

namespace syncfree::accuracy {
namespace {

// Enough to keep an H100's memory busy; Turing holds no more than 1024.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kResidentThreads = 1024;
#else
constexpr int kResidentThreads = 1536;
#endif

// The first `kFirst` vectors of a lane are loaded before anything is known of the target.
template <class T, int kFirst>
__global__ void __launch_bounds__(kWarpKernelThreads)
    rank_by_lanes(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kWarpKernelThreads> tally(job, counters);
  const unsigned int lanes = job.lanes, lane = threadIdx.x & (lanes - 1);
  const auto top_k = static_cast<unsigned int>(job.top_k);
  walk_rows_by_lanes<T, true>(
      job, tally, lane, lanes,
      [&](std::int64_t group, std::int64_t target, const ScoreRow<T>& row, bool scored,
          auto&& admitted) {
        const RowChunk<T, kFirst> chunk(row, lane, lanes);
        const bool has_score = scored && job.rule.in_range(target);
        const unsigned int wanted = has_score ? static_cast<unsigned int>(target) : 0;
        const RankScan<T> scan(row, wanted, has_score ? row.score(wanted) : T{});
        unsigned int count = scan.count(chunk) + scan.count_ends(lane, lanes);
        unsigned int ahead = sum_over_lanes(count, lanes);
        unsigned int done = kFirst * lanes;
        while (__any_sync(kFullWarp, ahead < top_k && done < row.vectors)) {
          if (ahead < top_k) count += scan.template count_chunk<kUnroll>(done + lane, lanes);
          ahead = sum_over_lanes(count, lanes);
          done += kUnroll * lanes;
        }
        if (scored && lane == 0 && admitted()) tally.add_rank(group, ahead, target, 0);
      });
}

// Adds a warp's count to the row's and tells whether the warp may leave. No barrier: a warp that
// learns of the others' counts late only reads on a little.
__device__ bool row_is_lost(unsigned int* ahead, unsigned int count, unsigned int top_k) {
  if (__any_sync(kFullWarp, count != 0)) {
    count = sum_over_lanes(count, 32);
    if (threadIdx.x % 32 == 0) atomicAdd(ahead, count);
  }
  return __any_sync(kFullWarp, *static_cast<volatile unsigned int*>(ahead) >= top_k);
}

template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads, kResidentThreads / kThreads)
    rank_by_blocks(const __grid_constant__ CountJob job) {
  // Used alternately, so that clearing one needs no barrier of its own.
  __shared__ unsigned int ahead[2];
  if (threadIdx.x < 2) ahead[threadIdx.x] = 0;
  __syncthreads();

  BlockTally<kThreads> tally(job, nullptr);
  const auto top_k = static_cast<unsigned int>(job.top_k);
  unsigned int parity = 0;
  walk_rows_by_blocks<T, false>(
      job, tally, [&](std::int64_t group, std::int64_t target, const ScoreRow<T>& row, auto&&) {
        const RankScan<T> scan(row, static_cast<unsigned int>(target),
                               row.score(static_cast<unsigned int>(target)));
        unsigned int count = scan.template count_chunk<1>(threadIdx.x, kThreads);
        count += scan.count_ends(threadIdx.x, kThreads);
        bool lost = row_is_lost(&ahead[parity], count, top_k);
        for (unsigned int first = kThreads + threadIdx.x;
             !lost && first - threadIdx.x % 32 < row.vectors; first += kUnroll * kThreads) {
          count = scan.template count_chunk<kUnroll>(first, kThreads);
          lost = row_is_lost(&ahead[parity], count, top_k);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
          tally.add_rank(group, ahead[parity], target, 0);
          ahead[parity] = 0;
        }
        parity ^= 1;
      });
}

template <class T>
cudaError_t launch_for(const CountJob& job, cudaStream_t stream) {
  switch (job.lanes) {
    case 128:
      return launch_job(rank_by_blocks<T, 128>, 128, 0, stream, job);
    case 1024:
      return launch_job(rank_by_blocks<T, 1024>, 1024, 0, stream, job);
    default:
      return launch_job(
          job.rows_at_once ? rank_by_lanes<T, 2 * kUnroll> : rank_by_lanes<T, kUnroll>,
          kWarpKernelThreads, job.shared_bytes(), stream, job);
  }
}

}  // namespace

cudaError_t launch_rank_rows(const CountJob& job, cudaStream_t stream) {
  return dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
    return launch_for<typename decltype(tag)::type>(job, stream);
  });
}

}  // namespace syncfree::accuracy
