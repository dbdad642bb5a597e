// What windows pass back, on its way through shared memory from the warps that find it to those
// that sum it up: a ring of row pairs, and the gates at both ends of each.
#pragma once

#include "ssim/ssim_backward_job.cuh"
#include "ssim/ssim_strip_levels.cuh"

namespace syncfree::ssim {

inline constexpr int kPairsOfWarps = 4;  // one that finds and one that sums for each scheduler
inline constexpr int kWalkThreads = 2 * 32 * kPairsOfWarps;
inline constexpr int kPairRows = 2;
inline constexpr int kGroupColumns = kPairsOfWarps * kStripColumns;
inline constexpr int kTermPitch = kGroupColumns + 2 * kMargin;
static_assert(kReach == GaussianWindow::kHalo && kReach <= kMargin);

struct RowOfTerms {
  float plane[kTermPlanes][kTermPitch];
};

struct alignas(16) PairOfRows {
  RowOfTerms row[kPairRows];
  // About which the levels are. All are zero where no warp has any, and need not be read.
  float pivot_s[kTermPitch];
  float pivot_d[kTermPitch];
  int has_pivots[kPairsOfWarps];
};

// Opens each time all warps of one side have passed it. Of one size on all devices and for the
// host, which asks for the memory and knows no architecture.
class alignas(8) Gate {
 public:
  __device__ void close() {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(kPairsOfWarps)
                 : "memory");
#else
    arrived_ = 0;
#endif
  }

  // By a whole warp: what its lanes read and wrote before happens before those who wait go on.
  __device__ void pass() {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address())
        : "memory");
#else
    __threadfence_block();
    atomicAdd(&arrived_, 1u);
#endif
  }

  // Until it has opened `times` times, of which those before the last are known to be over.
  __device__ void wait(unsigned times) {
    if (times == 0) return;
#if __CUDA_ARCH__ >= 900
    unsigned open = 0;
    while (open == 0)
      asm volatile(
          "{\n .reg .pred open;\n mbarrier.try_wait.parity.shared.b64 open, [%1], %2;\n"
          " selp.b32 %0, 1, 0, open;\n}"
          : "=r"(open)
          : "r"(address()), "r"((times - 1) & 1)
          : "memory");
#else
    const volatile unsigned& arrived = arrived_;
    while (!__all_sync(kWarp, static_cast<int>(arrived - times * kPairsOfWarps) >= 0)) {
    }
    __threadfence_block();
    __syncwarp();
#endif
  }

 private:
#if __CUDA_ARCH__ >= 900
  __device__ unsigned address() const {
    return static_cast<unsigned>(__cvta_generic_to_shared(&state_));
  }
  std::uint64_t state_;
#else
  unsigned arrived_;
#endif
};

static_assert(sizeof(Gate) == 8);

inline constexpr int kMostPairs = 8;

struct Gates {
  Gate full[kMostPairs];
  Gate empty[kMostPairs];

  __device__ void close() {
    for (int i = 0; i < kMostPairs; ++i) full[i].close(), empty[i].close();
  }
};

// Where a warp is in the ring.
struct RingPlace {
  int slot = 0;
  unsigned round = 0;

  __device__ void advance(int slots) {
    if (++slot < slots) return;
    slot = 0;
    ++round;
  }
};

__device__ inline void load_shared(const float* from, float* x) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

__device__ inline void store_shared(float* to, const float (&x)[kColumns]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

// Rows [top, end) of the columns [left, right) of one plane. Its windows begin at column `base`: at
// the edge of the image, or early enough for the first output.
struct Piece {
  std::int64_t plane;
  int left;
  int right;
  int base;
  int top;
  int end;

  // Row pairs of windows: from kReach above to kReach below.
  __device__ int pairs() const { return (end - top + 2 * kReach + 1) / kPairRows; }
  // Behind the last column of windows that an output needs, for an image of this width.
  __device__ int windows_end(int width) const { return min(right + kReach, width); }
};

// Taken off s, about the middle of its values; all warps of a strip find the same.
template <class Access>
__device__ float level_of_strip(const BackwardJob<float>& job, const Piece& piece, float scale) {
  const int width = static_cast<int>(job.axes[2].size);
  const std::int64_t y = job.axes[1].size / 2;
  const std::int64_t preds =
      plane_offset(job.preds, job.channels, piece.plane) + y * job.preds.stride[3];
  const std::int64_t target =
      plane_offset(job.target, job.channels, piece.plane) + y * job.target.stride[3];
  constexpr int kSpacing = kGroupColumns / 32;
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int x = min(piece.base + static_cast<int>(threadIdx.x % 32) * kSpacing + c, width - 1);
    sum += Access::load(job.preds, preds + x * job.preds.stride[4]) +
           Access::load(job.target, target + x * job.target.stride[4]);
  }
  sum *= scale / kColumns;
  float lanes = 1.0f;
  if (!LevelRules<GaussianWindow>::is_usual(sum)) sum = lanes = 0.0f;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kWarp, sum, distance);
    lanes += __shfl_xor_sync(kWarp, lanes, distance);
  }
  return sum / fmaxf(lanes, 1.0f);
}

}  // namespace syncfree::ssim
