// Gradients of values of large images: a block walks down a strip with two kinds of warps.
//
// Half of them walk as those of the forward pass do and find what each window passes back; the
// others follow a few rows behind and sum it up over the windows around each pixel. Either keeps
// the sums under way in registers, all that a thread can have, so that nothing is computed twice
// but the halo of a strip.
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
  int slots;  // of the ring
};

inline constexpr int kUnitRows = 8;

struct BackwardMemory {
  Gates gates;
  Constants<float> constants;
  WalkMemory walk[kPairsOfWarps];
};

// Behind which the ring begins.
inline constexpr int kRingOffset = (sizeof(BackwardMemory) + 15) / 16 * 16;

template <class Access>
__global__ void __launch_bounds__(kWalkThreads, 1)
    backward_walk_kernel(const __grid_constant__ BackwardJob<float> job,
                         const __grid_constant__ WalkStrips strips) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  BackwardMemory& memory = *reinterpret_cast<BackwardMemory*>(dynamic);
  PairOfRows* const ring = reinterpret_cast<PairOfRows*>(dynamic + kRingOffset);
  if (threadIdx.x == 0) {
    memory.gates.close();
    memory.constants = job.current_constants();
  }
  __syncthreads();

  // Units of one block that lie below each other are one piece.
  const auto each_piece = [&](auto& walk) {
    const std::int64_t total = job.planes * strips.strips * strips.units;
    std::int64_t unit = total * blockIdx.x / gridDim.x;
    const std::int64_t end = total * (blockIdx.x + 1) / gridDim.x;
    const int height = static_cast<int>(job.axes[1].size);
    const int width = static_cast<int>(job.axes[2].size);
    while (unit < end) {
      const std::int64_t strip = unit / strips.units, plane = strip / strips.strips;
      const int first = static_cast<int>(unit - strip * strips.units);
      const int count = static_cast<int>(min(std::int64_t{strips.units - first}, end - unit));
      const int left = static_cast<int>(strip - plane * strips.strips) * strips.columns;
      walk.run(Piece{plane, left, min(left + strips.columns, width), left == 0 ? 0 : left - kMargin,
                     first * kUnitRows, min((first + count) * kUnitRows, height)});
      unit += count;
    }
  };
  const int warp = threadIdx.x / 32;
  if (warp < kPairsOfWarps) {
    WindowWalk<Access> walk(job, memory.constants, memory.walk[warp], ring, memory.gates,
                            strips.slots, warp);
    each_piece(walk);
  } else {
    AdjointWalk<Access> walk(job, memory.constants, ring, memory.gates, strips.slots,
                             warp - kPairsOfWarps);
    each_piece(walk);
  }
}

}  // namespace syncfree::ssim
