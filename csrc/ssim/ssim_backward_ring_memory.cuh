// What a warp that walks down a strip for value and gradients keeps in shared memory.
#pragma once

#include <cstddef>

#include "ssim/ssim_backward_pixels.cuh"
#include "ssim/ssim_backward_walk_loss.cuh"
#include "ssim/ssim_ring_sums.cuh"
#include "ssim/ssim_strip_pixels.cuh"

namespace syncfree::ssim {

// A block is one warp: what is the same in a block is the same in a warp then, as far as the
// compiler knows.
inline constexpr int kGradientWarps = 8;  // of a multiprocessor: all registers

// A warp computes 128 columns of windows. Outputs need those of 5 columns more on both sides, which
// at an edge of the image are mirror images; vectors stay aligned where it is 8.
inline constexpr int kMostOutputs = kStripColumns - 2 * kMargin;  // but at an edge

// Rows [top, end) of the columns [left, right) of one plane.
struct GradientPiece {
  std::int64_t plane;
  int left;
  int right;
  int top;
  int end;

  // The first column of windows.
  __device__ int base() const { return max(left - kMargin, 0); }
};

// Those of a lane's columns, of which `first` is the first, that stand on an edge of the image.
template <class Access, class F>
__device__ void for_columns_at_edge(int first, int width, const F& f) {
  if constexpr (Access::kAligned) {
    if (first == 0) f(0);
    if (first + kColumns == width) f(kColumns - 1);
  } else {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (first + c == 0 || first + c == width - 1) f(c);
  }
}

// The last six rows of sums along a row, of both moments of s and of d, and of what windows pass
// back (TermPlane). Each lane touches its own columns alone.
struct GradientLines {
  static constexpr int kPlane = kStripColumns;
  static constexpr int kTerms = 4 * kPlane;
  static constexpr int kRow = kTerms + kTermPlanes * kPlane;
  static constexpr int kRows = 6;

  alignas(16) float row[kRows * kRow];
};

// Where a row's sums go, in the place of those six rows ago, and where those three rows ago are: of
// a lane, as offsets from its first line.
class LineOffsets {
 public:
  __device__ int now() const { return static_cast<int>(now_); }
  __device__ int third() const { return static_cast<int>(wrapped(now_, 3)); }
  __device__ void advance() { now_ = wrapped(now_, 1); }

 private:
  // The difference is a huge number where nothing has to be wrapped.
  static __device__ unsigned wrapped(unsigned offset, int rows) {
    return min(offset + rows * GradientLines::kRow,
               offset - (GradientLines::kRows - rows) * GradientLines::kRow);
  }

  unsigned now_ = 0;
};

// The same in a warp, in shared memory since registers are short.
struct alignas(16) WindowInputs {
  float twice_c1;
  float twice_c2;
  float zero_s;  // what the moments of s are about, but for their pivot
};

// `one`: a sum of pixels that has it for a factor is not begun before it is read. Otherwise the
// compiler adds them up long before the sum is needed, and waits for them.
struct alignas(16) OutputInputs {
  float scale_of_sums;  // from pixels to window sums
  float zero_s;
  float scale;  // from what windows pass back to gradients
  float one;
};

// How pixels become s and d.
struct alignas(16) PixelInputs {
  float scale;
  float minus_level;  // added to s
  float one;
  float unused;
};

template <class T>
struct alignas(16) InputPlanes {
  const T* preds;
  const T* target;
};

// Null where nobody wants it.
template <class T>
struct alignas(16) OutputPlanes {
  T* grad_preds;
  T* grad_target;
};

// Of one warp, of images of one type.
template <class T>
struct GradientMemory {
  // Lanes without outputs read what lies behind.
  static constexpr int kTermPitch = kStripColumns + kMargin;

  GradientLines lines;
  alignas(16) float rows[2 * kRowFloats];  // one row, s before d
  // What windows of one row pass back, by planes.
  alignas(16) float terms[kTermPlanes * kTermPitch];
  WindowInputs windows;
  OutputInputs outputs;
  PixelInputs pixels;
  InputPlanes<T> images;
  OutputPlanes<T> planes;
  ErrorWeights<float> errors;
  GradientPiece piece;
  // Sums over all pieces.
  double deficit;
  ExactSum absolute_error;
};

// Where a lane has its columns in there.
template <class T>
class LanePlace {
 public:
  __device__ void settle(GradientMemory<T>& memory) {
    place_ = SharedPlace(reinterpret_cast<float*>(&memory) + kColumns * threadIdx.x);
    place_.settle();
  }
  __device__ SharedPlace line() const { return place_ + at(offsetof(Memory, lines)); }
  __device__ SharedPlace row() const { return place_ + (at(offsetof(Memory, rows)) + kMargin); }
  __device__ SharedPlace terms() const { return place_ + at(offsetof(Memory, terms)); }

 private:
  using Memory = GradientMemory<T>;

  static SYNCFREE_HD constexpr int at(std::size_t bytes) {
    return static_cast<int>(bytes / sizeof(float));
  }

  SharedPlace place_;
};

// The system takes 1 KiB of each block.
static_assert(kGradientWarps * (sizeof(GradientMemory<float>) + 1024) <= (228 << 10));

}  // namespace syncfree::ssim
