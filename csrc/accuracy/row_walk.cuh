// Walks contiguous rows of scores and their targets, whatever is asked of a row.
#pragma once

#include "accuracy/score_row.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {

inline constexpr unsigned int kFullWarp = 0xffffffffu;
inline constexpr int kWarpKernelThreads = 128;
inline constexpr int kUnroll = 4;

__device__ inline unsigned int sum_over_lanes(unsigned int value, unsigned int lanes) {
  for (unsigned int offset = lanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

// Whether a row's target is judged before its scores are loaded. It need not be if rows can be
// visited whatever their targets are (kAtOnce) and nearly all are scored: without an ignored label.
template <bool kAtOnce>
__device__ bool judges_first(const CountJob& job) {
  return !kAtOnce || job.rule.has_ignore_index;
}

// Short rows: a power of two of lanes, at most a warp, shares one. Calls `visit(group, target, row,
// scored, admitted)` with whole warps; a row that is not `scored` is empty. For a scored row one
// lane asks `admitted()` before it counts.
template <class T, bool kAtOnce, class Visit>
__device__ __forceinline__ void walk_rows_by_lanes(const CountJob& job,
                                                   BlockTally<kWarpKernelThreads>& tally,
                                                   unsigned int lane, unsigned int lanes,
                                                   Visit&& visit) {
  const std::int64_t rows_per_tile = kWarpKernelThreads / lanes;
  const auto classes = static_cast<unsigned int>(job.classes);
  const std::int64_t units = job.group_count * job.blocks_per_group;

  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t group = divide(unit, job.blocks_per_group);
    const std::int64_t turn = unit - group * job.blocks_per_group;
    const Offsets base = job.groups(group);
    tally.open();
    for (std::int64_t first_row = turn * rows_per_tile; first_row < job.element_count;
         first_row += job.blocks_per_group * rows_per_tile) {
      const std::int64_t element = first_row + threadIdx.x / lanes;
      Offsets at = base;
      std::int64_t target = 0;
      bool scored = element < job.element_count;
      const bool judged = judges_first<kAtOnce>(job);
      if (scored) {
        const Offsets inner = job.elements(element);
        at.preds += inner.preds;
        target = load_label(job.target, job.target_dtype, at.target + inner.target,
                            job.rule.truncate_target);
        if (judged) scored = tally.admit(group, element, target, lane == 0);
      }
      if (!__any_sync(kFullWarp, scored)) continue;
      visit(group, target,
            ScoreRow<T>(static_cast<const T*>(job.preds) + at.preds, scored ? classes : 0), scored,
            [&] { return judged || tally.admit(group, element, target); });
    }
    tally.close(group, [&] {
      return share_of(job.element_count, rows_per_tile, turn, job.blocks_per_group);
    });
  }
  finish_groups(job);
}

// Long rows: a block each. Calls `visit(group, target, row, admitted)` with the whole block.
template <class T, bool kAtOnce, int kThreads, class Visit>
__device__ __forceinline__ void walk_rows_by_blocks(const CountJob& job,
                                                    BlockTally<kThreads>& tally, Visit&& visit) {
  // Rows this long are few enough to be counted in 32 bits.
  const auto rows = static_cast<unsigned int>(job.element_count);
  const auto units = static_cast<unsigned int>(job.group_count) * job.blocks_per_group;

  for (unsigned int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const unsigned int group = unit / job.blocks_per_group;
    tally.open();
    for (unsigned int r = unit % job.blocks_per_group; r < rows; r += job.blocks_per_group) {
      const Offsets base = job.groups(group), inner = job.elements(r);
      const std::int64_t target = load_label(job.target, job.target_dtype,
                                             base.target + inner.target, job.rule.truncate_target);
      const bool judged = judges_first<kAtOnce>(job);
      if (judged && !tally.admit(group, r, target, threadIdx.x == 0)) continue;
      visit(group, target,
            ScoreRow<T>(static_cast<const T*>(job.preds) + base.preds + inner.preds,
                        static_cast<unsigned int>(job.classes)),
            [&] { return judged || tally.admit(group, r, target); });
    }
    tally.template close<true>(group, [&] {
      // Not kept across the loop over rows, which is short of registers.
      const unsigned int turn = unit % job.blocks_per_group;
      return (rows - turn + job.blocks_per_group - 1) / job.blocks_per_group;
    });
  }
  finish_groups(job);
}

}  // namespace syncfree::accuracy
