// Gradients of values of large images: each warp of a block walks down 64 columns of a strip, first
// of windows, as in the forward pass, to find what they pass back, and a few rows behind of pixels,
// to sum that up over the windows around each. Both keep their sums under way in registers, all
// that a thread can have; between them lies a ring of rows that the warps of the block share, so
// that nothing is computed twice but the halo of a strip.
//
// Mirror images cost nothing, as in ssim_backward_strip.cuh.
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

// Behind which the ring begins.
template <bool kValues>
inline constexpr int kRingOffset = (sizeof(BackwardMemory<float, kValues>) + 15) / 16 * 16;

template <int kLag, bool kValues>
inline constexpr int kWalkMemory =
    kRingOffset<kValues> + kRingPairs<kLag> * static_cast<int>(sizeof(PairOfRows));

// Sums follow the windows by kLag pairs of rows. With one, warps seldom wait for each other; none
// is for GPUs with little shared memory.
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
    // The first rows complete no window. What they leave is written over.
    for (int step = -kReach;; ++step) {
      bool has_taken = false;
      // A loop of its own: sums then stay in the registers in which they are.
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
        // Here, where the compiler mixes it with what precedes.
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
  // Of a warp whose columns lie beyond the strip.
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

inline constexpr int kWalkBlocks = 2;  // of a multiprocessor: all registers

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
