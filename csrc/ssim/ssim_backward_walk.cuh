// Walk path of the gradient, for large images. The warps of a block walk down a strip side by side,
// 64 columns each. Each warp does two things: WindowWalk adds up windows, as in the forward pass,
// and finds their terms; a few rows behind it, AdjointWalk sums the terms of the windows around
// each pixel. Their partial sums take all registers that a thread can have.
//
// Between the two lies the ring: a ring buffer of row pairs of terms in shared memory, which the
// warps of the block share, so that nothing is computed twice but the halo of a strip. Each slot of
// the ring holds a pair of rows and a gate, a barrier that opens once all warps have written their
// part. (The ring path has another kind of ring, see ssim_backward_ring.cuh.)
//
// Mirrored borders are handled as in ssim_backward_strip.cuh.
#pragma once

#include "ssim/ssim_backward_walk_adjoint.cuh"
#include "ssim/ssim_backward_walk_windows.cuh"

namespace syncfree::ssim {

// How planes are cut: strips of `columns`, each into units of kUnitRows.
struct WalkStrips {
  int strips;
  int columns;
  int units;  // down a strip
};

template <class T, bool kValues>
struct BackwardMemory {
  Constants<float> constants;
  WindowMemory<T, kValues> walk[kWalkWarps];
};

// Where the ring begins in shared memory.
template <bool kValues>
inline constexpr int kRingOffset = (sizeof(BackwardMemory<float, kValues>) + 15) / 16 * 16;

template <int kLag, bool kValues>
inline constexpr int kWalkMemory =
    kRingOffset<kValues> + kRingPairs<kLag> * static_cast<int>(sizeof(PairOfRows));

// Sums of terms follow the windows kLag pairs of rows behind. With a lag of one, warps seldom wait
// for each other; zero is for GPUs with little shared memory.
template <class Access, int kLag, bool kErrors, bool kValues>
class BackwardWalk {
 public:
  __device__ BackwardWalk(const BackwardJob<float>& job,
                          BackwardMemory<typename Access::Element, kValues>& memory,
                          const WalkResults& results, PairOfRows* ring)
      : width_(static_cast<int>(job.axes[2].size)),
        ahead_(ring),
        behind_(ring),
        windows_(job, memory.constants, memory.walk[threadIdx.x / 32], threadIdx.x / 32),
        outputs_(job, memory.constants, results, memory.walk[threadIdx.x / 32], threadIdx.x / 32) {}

  __device__ void run(const Piece& piece) {
    const int pairs = piece.pairs();
    if (piece.base + static_cast<int>(threadIdx.x) / 32 * kWarpColumns >=
        piece.windows_end(width_)) {
      stand_by(pairs);
      return;
    }
    windows_.start(piece);
    outputs_.start(piece);
    windows_.enter_pair();
    bool are_plain = windows_.judge_pair();
    // The first rows complete no window. What they write is overwritten.
    for (int step = -kReach;; ++step) {
      bool has_taken = false;
      // A loop of its own, so that sums stay in the same registers.
      while (are_plain &&
             static_cast<unsigned>(step - kLag) < static_cast<unsigned>(pairs - kLag)) {
        outputs_.fetch();
        windows_.take_pair(*ahead_, ahead_.slot());
        hand_on();
        windows_.enter_pair();
        behind_.wait();
        if (!outputs_.is_plain(*behind_)) {
          has_taken = true;
          break;
        }
        outputs_.take_pair(*behind_);
        behind_.advance();
        // Judged here, where the compiler interleaves it with what precedes.
        are_plain = windows_.judge_pair();
        ++step;
      }
      if (step == pairs + kLag) {
        outputs_.end();
        return;
      }
      if (!has_taken) {
        if (step >= kLag) outputs_.fetch();
        if (step < pairs) {
          windows_.take_pair_about_pivots(*ahead_, ahead_.slot());
          if (step >= 0) hand_on();
          windows_.enter_pair();
        }
        if (step >= kLag) behind_.wait();
      }
      if (step >= kLag) {
        outputs_.take_pair_about_pivots(*behind_);
        behind_.advance();
      }
      are_plain = windows_.judge_pair();
    }
  }

 private:
  // For a warp whose columns lie beyond the strip: it only takes part in the gates.
  __device__ void stand_by(int pairs) {
    for (int step = 0; step < pairs + kLag; ++step) {
      if (step < pairs) {
        windows_.tell_of_pivots(*ahead_, false);
        hand_on();
      }
      if (step >= kLag) {
        behind_.wait();
        behind_.advance();
      }
    }
  }

  __device__ void hand_on() {
    (*ahead_).full.pass();
    ahead_.advance();
  }

  const int width_;
  RingPlace<kRingPairs<kLag>> ahead_;
  RingPlace<kRingPairs<kLag>> behind_;
  WindowWalk<Access, kValues> windows_;
  AdjointWalk<Access, kErrors, kValues> outputs_;
};

inline constexpr int kWalkBlocks = 2;  // per multiprocessor, which takes all registers

template <class Access, int kLag, bool kErrors, bool kValues>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks)
    backward_walk_kernel(const __grid_constant__ BackwardJob<float> job,
                         const __grid_constant__ WalkStrips strips,
                         const __grid_constant__ WalkResults results) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Memory = BackwardMemory<typename Access::Element, kValues>;
  static_assert(sizeof(Memory) <= kRingOffset<kValues>);
  Memory& memory = *reinterpret_cast<Memory*>(dynamic);
  PairOfRows* const ring = reinterpret_cast<PairOfRows*>(dynamic + kRingOffset<kValues>);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRingPairs<kLag>; ++i) ring[i].open();
    memory.constants = job.current_constants();
  }
  if constexpr (kValues) memory.walk[threadIdx.x / 32].totals[threadIdx.x % 32] = {};
  __syncthreads();

  BackwardWalk<Access, kLag, kErrors, kValues> walk(job, memory, results, ring);
  const std::int64_t total = job.planes * strips.strips * strips.units;
  const int height = static_cast<int>(job.axes[1].size);
  const int width = static_cast<int>(job.axes[2].size);
  for_each_piece(strips, height, total * blockIdx.x / gridDim.x,
                 total * (blockIdx.x + 1) / gridDim.x,
                 [&](std::int64_t plane, int strip, int top, int end) {
                   const int left = strip * strips.columns;
                   walk.run(Piece{plane, left, min(left + strips.columns, width),
                                  left == 0 ? 0 : left - kMargin, top, end});
                 });
  if constexpr (kValues) {
    __syncthreads();
    if (threadIdx.x >= 32) return;
    LaneTotals totals = memory.walk[0].totals[threadIdx.x];
    for (int warp = 1; warp < kWalkWarps; ++warp) totals += memory.walk[warp].totals[threadIdx.x];
    WalkSum(results).hand_in(totals);
  }
}

}  // namespace syncfree::ssim
