// Class counts from contiguous rows of scores: the argmax of each row and, with top_k > 1, the rank
// of its target too.
#include "accuracy/launch_job.cuh"
#include "accuracy/row_walk.cuh"

namespace syncfree::accuracy {
namespace {

constexpr unsigned int kNowhere = 0xffffffffu;

// What a thread finds in its share of a row: the greatest score and, with kRank, how many classes
// are ahead of the target.
template <class T, bool kRank>
struct Look {
  Greatest<T> greatest;
  unsigned int ahead = 0;

  __device__ Look(const ScoreRow<T>& row, std::int64_t target, bool scored, unsigned int lane,
                  unsigned int lanes) {
    if constexpr (kRank) {
      const auto wanted = static_cast<unsigned int>(target);
      const RankScan<T> scan(row, wanted, scored ? row.score(wanted) : T{});
      greatest =
          find_greatest<T, kUnroll>(row, lane, lanes, [&](unsigned int vector, const uint4& words) {
            ahead += scan.count_vector(vector, words);
          });
      ahead += scan.count_ends(lane, lanes);
    } else {
      greatest = find_greatest<T, kUnroll>(row, lane, lanes, [](unsigned int, const uint4&) {});
    }
  }
};

template <class T, bool kRank>
__global__ void __launch_bounds__(kWarpKernelThreads)
    argmax_by_lanes(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kWarpKernelThreads> tally(job, counters);
  const unsigned int lanes = job.lanes, lane = threadIdx.x & (lanes - 1);
  walk_rows_by_lanes<T, !kRank>(
      job, tally, lane, lanes,
      [&](std::int64_t group, std::int64_t target, const ScoreRow<T>& row, bool scored,
          auto&& admitted) {
        const Look<T, kRank> look(row, target, scored, lane, lanes);
        const Greatest<T>& mine = look.greatest;
        BitsOf<T> key = mine.key;
        for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
          key = max(key, __shfl_xor_sync(kFullWarp, key, offset));
        unsigned int predicted = scored && mine.key == key ? mine.resolve(row) : kNowhere;
        for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
          predicted = min(predicted, __shfl_xor_sync(kFullWarp, predicted, offset));
        [[maybe_unused]] const unsigned int ahead = kRank ? sum_over_lanes(look.ahead, lanes) : 0;
        if (scored && lane == 0 && admitted()) {
          if constexpr (kRank)
            tally.add_rank(group, ahead, target, predicted);
          else
            tally.add(group, predicted == target, target, predicted);
        }
      });
}

template <class T, bool kRank, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    argmax_by_blocks(const __grid_constant__ CountJob job) {
  __shared__ unsigned long long best;
  __shared__ unsigned int predicted;
  __shared__ unsigned int ahead;
  BlockTally<kThreads> tally(job, nullptr);
  walk_rows_by_blocks<T, !kRank>(
      job, tally,
      [&](std::int64_t group, std::int64_t target, const ScoreRow<T>& row, auto&& admitted) {
        if (threadIdx.x == 0) {
          best = 0;
          predicted = kNowhere;
          ahead = 0;
        }
        __syncthreads();
        const Look<T, kRank> look(row, target, true, threadIdx.x, kThreads);
        const Greatest<T>& mine = look.greatest;
        BitsOf<T> key = mine.key;
        for (unsigned int offset = 16; offset > 0; offset /= 2)
          key = max(key, __shfl_xor_sync(kFullWarp, key, offset));
        if (threadIdx.x % 32 == 0) atomicMax(&best, static_cast<unsigned long long>(key));
        if constexpr (kRank) {
          const unsigned int count = sum_over_lanes(look.ahead, 32);
          if (threadIdx.x % 32 == 0 && count != 0) atomicAdd(&ahead, count);
        }
        __syncthreads();
        if (mine.key == best) atomicMin(&predicted, mine.resolve(row));
        __syncthreads();
        if (threadIdx.x == 0 && admitted()) {
          if constexpr (kRank)
            tally.add_rank(group, ahead, target, predicted);
          else
            tally.add(group, predicted == target, target, predicted);
        }
      });
}

template <class T, bool kRank>
cudaError_t launch_for(const CountJob& job, cudaStream_t stream) {
  switch (job.lanes) {
    case 128:
      return launch_job(argmax_by_blocks<T, kRank, 128>, 128, 0, stream, job);
    case 256:
      return launch_job(argmax_by_blocks<T, kRank, 256>, 256, 0, stream, job);
    case 1024:
      return launch_job(argmax_by_blocks<T, kRank, 1024>, 1024, 0, stream, job);
    default:
      return launch_job(argmax_by_lanes<T, kRank>, kWarpKernelThreads, job.shared_bytes(), stream,
                        job);
  }
}

}  // namespace

cudaError_t launch_argmax_rows(const CountJob& job, cudaStream_t stream) {
  return dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool ranks = job.top_k > 1 || job.tally == Tally::kRanks;
    return ranks ? launch_for<T, true>(job, stream) : launch_for<T, false>(job, stream);
  });
}

}  // namespace syncfree::accuracy
