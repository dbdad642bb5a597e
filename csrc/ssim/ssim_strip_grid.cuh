// How the warps of a persistent grid share the strips of a batch. The units of all strips are
// numbered consecutively, down one strip after the other.
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "core/early_launch.cuh"
#include "ssim/ssim_job.cuh"
#include "ssim/strip_shares.h"

namespace syncfree::ssim {

inline constexpr int kStripWarps = 2;  // of a block; more or fewer are slower
inline constexpr int kStripThreads = 32 * kStripWarps;
inline constexpr int kStripBlocksPerMultiprocessor = 4;  // 8 warps of 255 registers take all

__device__ inline std::int64_t share_begin(const StripUnits& units, std::int64_t total,
                                           std::int64_t warp, std::int64_t warps) {
  return begin_of_share(total, units.of_strip, units.rows, warp, warps);
}

// The share of one warp: consecutive units.
template <bool kNeighboursTogether>
class StripShare {
 public:
  __device__ StripShare(const StripUnits& units, std::int64_t total, std::int64_t warp,
                        std::int64_t warps)
      : units_(units),
        unit_(share_begin(units, total, warp, warps)),
        end_(share_begin(units, total, warp + 1, warps)) {}

  __device__ bool is_left() const { return unit_ < end_; }
  __device__ std::int64_t first() const { return unit_; }
  // How many units, starting with first(), lie in the same strip.
  __device__ int count() const {
    const std::int64_t left_in_strip = units_.of_strip - unit_ % units_.of_strip;
    return static_cast<int>(min(left_in_strip, end_ - unit_));
  }
  __device__ void take(int count) { unit_ += count; }

 private:
  const StripUnits& units_;
  std::int64_t unit_;
  const std::int64_t end_;
};

// Whole strips first, neighboring ones at the same time, then a share of what is left. Neighboring
// strips have sectors of memory in common, which come from memory only once where strips are whole.
// For walks that leave memory less time: those of the uniform window, those of ring strips, and
// those that write the images of the next scale.
template <>
class StripShare<true> {
 public:
  __device__ StripShare(const StripUnits& units, std::int64_t total, std::int64_t warp,
                        std::int64_t warps)
      : units_(units),
        warp_(warp),
        warps_(warps),
        whole_(total / units.of_strip / warps * units.of_strip),
        begin_(share_begin(units, total - whole_ * warps, warp, warps)),
        end_(whole_ + share_begin(units, total - whole_ * warps, warp + 1, warps) - begin_) {}

  __device__ bool is_left() const { return taken_ < end_; }
  __device__ std::int64_t first() const {
    return taken_ < whole_ ? taken_ * warps_ + warp_ * units_.of_strip
                           : whole_ * warps_ + begin_ + taken_ - whole_;
  }
  __device__ int count() const {
    const std::int64_t left_in_strip = units_.of_strip - first() % units_.of_strip;
    return static_cast<int>(min(left_in_strip, end_ - taken_));
  }
  __device__ void take(int count) { taken_ += count; }

 private:
  const StripUnits& units_;
  const std::int64_t warp_;
  const std::int64_t warps_;
  const std::int64_t whole_;  // units of whole strips, for each warp
  const std::int64_t begin_;  // of this warp's share of the rest
  const std::int64_t end_;
  std::int64_t taken_ = 0;
};

template <class Walk>
__device__ void walk_down_strips(const Job<float>& job, const StripUnits& units) {
  __shared__ typename Walk::Memory memory[kStripWarps];
  __shared__ float4 pool_slots[Walk::kPools ? kStripThreads : 1];
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kStripWarps;
  const std::int64_t warp = blockIdx.x * kStripWarps + threadIdx.x / 32;
  const std::int64_t total = job.results.images * job.results.units_per_image;
  StripShare<Walk::kNeighboursTogether> share(units, total, warp, warps);
  __shared__ Constants<float> constants;
  wait_for_kernel_ahead();
  if (threadIdx.x == 0)
    constants = job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants;
  __syncthreads();
  Walk walk(job, units, memory[threadIdx.x / 32], pool_slots, constants);
  while (share.is_left()) {
    const int count = share.count();
    walk.run(share.first(), count);
    share.take(count);
  }
}

inline unsigned blocks_for_strips(const Job<float>& job) {
  const std::int64_t total = job.results.images * job.results.units_per_image;
  return static_cast<unsigned>(std::min<std::int64_t>(
      (total + kStripWarps - 1) / kStripWarps,
      kStripBlocksPerMultiprocessor * current_device_info().multiprocessors));
}

}  // namespace syncfree::ssim
