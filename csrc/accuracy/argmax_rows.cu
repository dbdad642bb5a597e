// Class counts from contiguous rows of scores by the argmax of each row.
#include "accuracy/score_row.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr unsigned int kFullWarp = 0xffffffffu;
constexpr unsigned int kNowhere = 0xffffffffu;
constexpr int kWarpKernelThreads = 128;
constexpr int kUnroll = 4;

// Short rows: a power of two of lanes, at most a warp, shares one.
template <class T>
__global__ void __launch_bounds__(kWarpKernelThreads)
    argmax_by_lanes(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kWarpKernelThreads> tally(job, counters);
  const unsigned int lanes = job.lanes, lane = threadIdx.x & (lanes - 1);
  const std::int64_t rows_per_tile = kWarpKernelThreads / lanes;
  const auto classes = static_cast<unsigned int>(job.classes);
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
      const Greatest<T> mine = find_greatest<T, kUnroll>(row, lane, lanes);
      BitsOf<T> key = mine.key;
      for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
        key = max(key, __shfl_xor_sync(kFullWarp, key, offset));
      unsigned int predicted = scored && mine.key == key ? mine.resolve(row) : kNowhere;
      for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
        predicted = min(predicted, __shfl_xor_sync(kFullWarp, predicted, offset));
      if (scored && lane == 0) tally.add(group, predicted == target, target, predicted);
    }
    tally.close(group, share_of(job.element_count, rows_per_tile, turn, job.blocks_per_group));
  }
  finish_groups(job);
}

// Long rows: a block each.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    argmax_by_blocks(const __grid_constant__ CountJob job) {
  __shared__ unsigned long long best;
  __shared__ unsigned int predicted;
  BlockTally<kThreads> tally(job, nullptr);
  // Rows this long are few enough to be counted in 32 bits.
  const auto rows = static_cast<unsigned int>(job.element_count);
  const auto units = static_cast<unsigned int>(job.group_count) * job.blocks_per_group;

  for (unsigned int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    tally.open();
    const unsigned int group = unit / job.blocks_per_group;
    for (unsigned int r = unit % job.blocks_per_group; r < rows; r += job.blocks_per_group) {
      const Offsets base = job.groups(group), inner = job.elements(r);
      const std::int64_t target = load_label(job.target, job.target_dtype,
                                             base.target + inner.target, job.rule.truncate_target);
      if (!tally.admit(group, r, target, threadIdx.x == 0)) continue;

      if (threadIdx.x == 0) {
        best = 0;
        predicted = kNowhere;
      }
      __syncthreads();
      const ScoreRow<T> row(static_cast<const T*>(job.preds) + base.preds + inner.preds,
                            static_cast<unsigned int>(job.classes));
      const Greatest<T> mine = find_greatest<T, kUnroll>(row, threadIdx.x, kThreads);
      BitsOf<T> key = mine.key;
      for (unsigned int offset = 16; offset > 0; offset /= 2)
        key = max(key, __shfl_xor_sync(kFullWarp, key, offset));
      if (threadIdx.x % 32 == 0) atomicMax(&best, static_cast<unsigned long long>(key));
      __syncthreads();
      if (mine.key == best) atomicMin(&predicted, mine.resolve(row));
      __syncthreads();
      if (threadIdx.x == 0) tally.add(group, predicted == target, target, predicted);
    }
    tally.template close<true>(group, rows);
  }
  finish_groups(job);
}

template <class T>
void launch_for(const CountJob& job, cudaStream_t stream) {
  switch (job.lanes) {
    case 256:
      argmax_by_blocks<T, 256><<<job.blocks, 256, 0, stream>>>(job);
      break;
    case 1024:
      argmax_by_blocks<T, 1024><<<job.blocks, 1024, 0, stream>>>(job);
      break;
    default:
      argmax_by_lanes<T><<<job.blocks, kWarpKernelThreads, job.shared_bytes(), stream>>>(job);
      break;
  }
}

}  // namespace

cudaError_t launch_argmax_rows(const CountJob& job, cudaStream_t stream) {
  dispatch_score_dtype(job.preds_dtype,
                       [&](auto tag) { launch_for<typename decltype(tag)::type>(job, stream); });
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
