// The ring of the walk path: row pairs of terms on their way, through shared memory, from the
// windows to the sums around each pixel. Each pair has a gate that opens once all warps of the
// block have written their part.
#pragma once

#include "ssim/ssim_backward_pixels.cuh"
#include "ssim/ssim_strip_levels.cuh"
#include "ssim/ssim_strip_pixels.cuh"

namespace syncfree::ssim {

inline constexpr int kWalkWarps = 4;
inline constexpr int kWalkThreads = 32 * kWalkWarps;
inline constexpr int kWarpColumns = 32 * kWalkColumns;
inline constexpr int kGroupColumns = kWalkWarps * kWarpColumns;
// Where in a row lanes beyond the image write, if their own places hold mirror images.
inline constexpr int kPlaceBeyond = kGroupColumns + 2 * kMargin;
inline constexpr int kTermPitch = kPlaceBeyond + 8;
static_assert(kReach == GaussianWindow::kHalo && kReach <= kMargin);

// The terms of one window, for s or for d.
struct alignas(8) WalkTerm {
  float level;
  float slope;
};

struct alignas(16) RowOfTerms {
  WalkTerm plane[2][kTermPitch];  // of s and of d
};

// A barrier that opens each time all threads of the block have passed it. It has the same size on
// all devices and on the host, which computes the size of shared memory and knows no architecture.
class alignas(8) Gate {
 public:
  // Initializes the gate.
  __device__ void close() {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(kWalkThreads)
                 : "memory");
#else
    arrived_ = 0;
#endif
  }

  // Arrives, without waiting. Called by all threads of the block: what they read and wrote before
  // happens before those who wait go on. One lane of each warp behind a __syncwarp() would be
  // enough, but costs as much, and racecheck takes the other lanes' accesses for races.
  __device__ void pass() {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address())
        : "memory");
#else
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    __threadfence_block();
    atomicAdd(&arrived_, 1u);
#endif
  }

  // Waits until the gate has opened `times` times, where all openings but the last are known to be
  // over.
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
    while (!__all_sync(kWarp, static_cast<int>(arrived - times * kWalkWarps) >= 0)) {
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

struct alignas(16) PairOfRows {
  Gate full;
  RowOfTerms row[kPairRows];
  SumDifference pivot[kTermPitch];  // to which the levels are relative
  // Whether each warp has pivots in its columns. If not, they are all zero and need not be read.
  alignas(8) unsigned char has_pivots[8];
  static_assert(kWalkWarps < 8);

  // Initializes a slot of the ring.
  __device__ void open() {
    full.close();
    for (unsigned char& has : has_pivots) has = false;
  }

  // Whether there are pivots in the columns that a warp sums over, its own and those on both sides.
  __device__ bool has_pivots_near(int warp) const {
    std::uint64_t flags;
    memcpy(&flags, has_pivots, sizeof flags);
    return (flags << 8 >> 8 * warp & 0xffffff) != 0;
  }
};

// The number of slots, where sums of terms follow the windows kLag pairs behind. A warp that writes
// a pair has waited for the gate of the pair kLag + 1 before it. By then all warps had written that
// pair, and so had finished summing the pair another kLag + 1 before, which the slot held last. The
// first pairs of a piece are written without such a wait, but each piece ends with a wait for its
// last pair, which is as good.
template <int kLag>
inline constexpr int kRingPairs = 2 * kLag + 2;

// The position of a warp in the ring.
template <int kPairs>
class RingPlace {
 public:
  __device__ explicit RingPlace(PairOfRows* ring) : ring_(ring), pair_(ring) {}

  __device__ PairOfRows& operator*() const { return *pair_; }
  __device__ unsigned slot() const { return slot_; }
  __device__ void wait() const { pair_->full.wait(round_ + 1); }
  __device__ void advance() {
    ++pair_;
    if (++slot_ != kPairs) return;
    pair_ = ring_;
    slot_ = 0;
    ++round_;
  }

 private:
  PairOfRows* const ring_;
  PairOfRows* pair_;
  unsigned slot_ = 0;
  unsigned round_ = 0;
};

__device__ inline void load_shared(const float* from, float* x) {
  const float2 both = *reinterpret_cast<const float2*>(from);
  x[0] = both.x, x[1] = both.y;
}

__device__ inline void load_shared(const WalkTerm* from, WalkTerm* x) {
  const float4 both = *reinterpret_cast<const float4*>(from);
  x[0] = {both.x, both.y}, x[1] = {both.z, both.w};
}

__device__ inline void load_shared(const SumDifference* from, SumDifference* x) {
  const float4 both = *reinterpret_cast<const float4*>(from);
  x[0] = {both.x, both.y}, x[1] = {both.z, both.w};
}

__device__ inline void store_shared(WalkTerm* to, const WalkTerm (&x)[kWalkColumns]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0].level, x[0].slope, x[1].level, x[1].slope);
}

__device__ inline void store_shared(SumDifference* to, const SumDifference (&x)[kWalkColumns]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0].s, x[0].d, x[1].s, x[1].d);
}

__device__ inline void store_shared(float* to, const float (&x)[kWalkColumns]) {
  *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
}

// Loads a lane's columns and those kReach to either side, which its sums or windows cover.
template <class T, int kCount>
__device__ void load_window(const T* own, T (&x)[kCount]) {
  static_assert(kCount == kWalkColumns + 2 * kReach && kReach % 2 == 1);
  x[0] = own[-kReach];
#pragma unroll
  for (int i = 1; i < kCount - 1; i += kWalkColumns) load_shared(own - kReach + i, x + i);
  x[kCount - 1] = own[kCount - 1 - kReach];
}

// Rows [top, end) of the columns [left, right) of one plane. Its windows begin at column `base`:
// the edge of the image, or early enough for the first output.
struct Piece {
  std::int64_t plane;
  int left;
  int right;
  int base;
  int top;
  int end;

  // Pairs of rows of windows, from kReach rows above the piece to kReach rows below it.
  __device__ int pairs() const { return (end - top + 2 * kReach + 1) / kPairRows; }
  // The end of the columns of windows that outputs need, in an image of this width.
  __device__ int windows_end(int width) const { return min(right + kReach, width); }
};

// The level that is subtracted from s, near the middle of its values. All warps of a strip find the
// same one.
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
  return mean_of_usual<LevelRules<GaussianWindow>>(sum * (scale / kColumns));
}

}  // namespace syncfree::ssim
