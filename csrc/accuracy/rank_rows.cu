// Right or wrong from contiguous rows of scores: leaves a row once top_k classes beat the target.
#include "accuracy/score_row.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr unsigned int kFullWarp = 0xffffffffu;
constexpr int kWarpKernelThreads = 128;
constexpr int kUnroll = 4;
// Enough to keep an H100's memory busy; Turing holds no more than 1024.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kResidentThreads = 1024;
#else
constexpr int kResidentThreads = 1536;
#endif

__device__ unsigned int sum_over_lanes(unsigned int value, unsigned int lanes) {
  for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

// Short rows: a power of two of lanes, at most a warp, shares one.
template <class T>
__global__ void __launch_bounds__(kWarpKernelThreads)
    rank_by_lanes(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kWarpKernelThreads> tally(job, counters);
  const unsigned int lanes = job.lanes, lane = threadIdx.x & (lanes - 1);
  const std::int64_t rows_per_tile = kWarpKernelThreads / lanes;
  const auto classes = static_cast<unsigned int>(job.classes);
  const auto top_k = static_cast<unsigned int>(job.top_k);
  const std::int64_t units = job.group_count * job.blocks_per_group;

  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t group = quotient(unit, job.blocks_per_group);
    const std::int64_t turn = unit - group * job.blocks_per_group;
    const Offsets base = job.groups(group);
    tally.open();
    for (std::int64_t first_row = turn * rows_per_tile; first_row < job.element_count;
         first_row += job.blocks_per_group * rows_per_tile) {
      const std::int64_t element = first_row + threadIdx.x / lanes;
      Offsets at = base;
      std::int64_t target = 0;
      bool scored = element < job.element_count;
      if (scored) {
        const Offsets inner = job.elements(element);
        at.preds += inner.preds;
        target = load_label(job.target, job.target_dtype, at.target + inner.target,
                            job.rule.truncate_target);
        scored = tally.admit(group, element, target, lane == 0);
      }
      if (!__any_sync(kFullWarp, scored)) continue;

      const ScoreRow<T> row(static_cast<const T*>(job.preds) + at.preds, scored ? classes : 0);
      const RankScan<T> scan(row, static_cast<unsigned int>(target),
                             scored ? row.score(static_cast<unsigned int>(target)) : T{});
      unsigned int count = scan.template count_chunk<kUnroll>(lane, lanes);
      count += scan.count_ends(lane, lanes);
      unsigned int ahead = sum_over_lanes(count, lanes);
      unsigned int done = kUnroll * lanes;
      while (__any_sync(kFullWarp, ahead < top_k && done < row.vectors)) {
        if (ahead < top_k) count += scan.template count_chunk<kUnroll>(done + lane, lanes);
        ahead = sum_over_lanes(count, lanes);
        done += kUnroll * lanes;
      }
      if (scored && lane == 0) tally.add(group, ahead < top_k, target, 0);
    }
    tally.close(group, share_of(job.element_count, rows_per_tile, turn, job.blocks_per_group));
  }
  finish_groups(job);
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

// Long rows: a block each.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads, kResidentThreads / kThreads)
    rank_by_blocks(const __grid_constant__ CountJob job) {
  // By turns, so that clearing one needs no barrier of its own.
  __shared__ unsigned int ahead[2];
  if (threadIdx.x < 2) ahead[threadIdx.x] = 0;
  __syncthreads();

  BlockTally<kThreads> tally(job, nullptr);
  const auto top_k = static_cast<unsigned int>(job.top_k);
  // Rows this long are few enough to be counted in 32 bits.
  const auto rows = static_cast<unsigned int>(job.element_count);
  const auto units = static_cast<unsigned int>(job.group_count) * job.blocks_per_group;
  unsigned int parity = 0;

  for (unsigned int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    tally.open();
    for (unsigned int r = unit % job.blocks_per_group; r < rows; r += job.blocks_per_group) {
      const unsigned int group = unit / job.blocks_per_group;
      const Offsets base = job.groups(group), inner = job.elements(r);
      const std::int64_t target = load_label(job.target, job.target_dtype,
                                             base.target + inner.target, job.rule.truncate_target);
      if (!tally.admit(group, r, target, threadIdx.x == 0)) continue;

      const ScoreRow<T> row(static_cast<const T*>(job.preds) + base.preds + inner.preds,
                            static_cast<unsigned int>(job.classes));
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
        tally.add(group, ahead[parity] < top_k, target, 0);
        ahead[parity] = 0;
      }
      parity ^= 1;
    }
    const unsigned int turn = unit % job.blocks_per_group;
    tally.template close<true>(unit / job.blocks_per_group,
                               (rows - turn + job.blocks_per_group - 1) / job.blocks_per_group);
  }
  finish_groups(job);
}

template <class T>
void launch_for(const CountJob& job, cudaStream_t stream) {
  switch (job.lanes) {
    case 128:
      rank_by_blocks<T, 128><<<job.blocks, 128, 0, stream>>>(job);
      break;
    case 1024:
      rank_by_blocks<T, 1024><<<job.blocks, 1024, 0, stream>>>(job);
      break;
    default:
      rank_by_lanes<T><<<job.blocks, kWarpKernelThreads, job.shared_bytes(), stream>>>(job);
      break;
  }
}

}  // namespace

cudaError_t launch_rank_rows(const CountJob& job, cudaStream_t stream) {
  dispatch_score_dtype(job.preds_dtype,
                       [&](auto tag) { launch_for<typename decltype(tag)::type>(job, stream); });
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
