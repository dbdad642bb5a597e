// What a warp of the ring path keeps in shared memory.
#pragma once

#include <cstddef>

#include "ssim/ssim_backward_pixels.cuh"
#include "ssim/ssim_backward_walk_loss.cuh"
#include "ssim/ssim_ring_sums.cuh"
#include "ssim/ssim_strip_pixels.cuh"

namespace syncfree::ssim {

// A block is one warp, so that the compiler knows what is uniform in a block to be uniform in a
// warp.
inline constexpr int kGradientWarps = 8;  // per multiprocessor, which takes all registers

// A warp computes 128 columns of windows. Its outputs need the windows of 5 more columns on both
// sides; at an edge of the image these are mirror images. A margin of 8 keeps vectors aligned.
inline constexpr int kMostOutputs = kStripColumns - 2 * kMargin;  // a margin more at an edge

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

// Calls f for those of a lane's columns, which begin at `first`, that lie on an edge of the image.
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

// The lines of one warp: the last six rows of sums along a row, for both moments of s and of d and
// for the terms (TermPlane). Each lane accesses its own columns only.
struct GradientLines {
  static constexpr int kPlane = kStripColumns;
  static constexpr int kTerms = 4 * kPlane;
  static constexpr int kRow = kTerms + kTermPlanes * kPlane;
  static constexpr int kRows = 6;

  alignas(16) float row[kRows * kRow];
};

// Which line a row's sums replace, that of six rows ago, and which line is that of three rows ago:
// offsets from a lane's place in the first line.
class LineOffsets {
 public:
  __device__ int now() const { return static_cast<int>(now_); }
  __device__ int third() const { return static_cast<int>(wrapped(now_, 3)); }
  __device__ void advance() { now_ = wrapped(now_, 1); }

 private:
  // Where nothing has to be wrapped the difference is a huge number, as it is unsigned.
  static __device__ unsigned wrapped(unsigned offset, int rows) {
    return min(offset + rows * GradientLines::kRow,
               offset - (GradientLines::kRows - rows) * GradientLines::kRow);
  }

  unsigned now_ = 0;
};

// Inputs of the formula, uniform in a warp. In shared memory, since registers are scarce.
struct alignas(16) WindowInputs {
  float twice_c1;
  float twice_c2;
  float zero_s;  // window sum of the level that was subtracted from s
};

// `one` is 1 and a factor in the sum of two pixels, so that the addition cannot begin before it is
// read. Otherwise the compiler adds pixels long before it needs their sum, and waits for their
// loads.
struct alignas(16) OutputInputs {
  float scale_of_sums;  // from pixels to window sums
  float zero_s;
  float scale;  // from sums of terms to gradients
  float one;
};

// Inputs of the conversion from pixels to s and d.
struct alignas(16) RingPixelInputs {
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

// Null if a gradient is not wanted.
template <class T>
struct alignas(16) OutputPlanes {
  T* grad_preds;
  T* grad_target;
};

// All of it, for one warp and images of one type.
template <class T>
struct GradientMemory {
  // Longer than a row, since lanes without outputs read beyond its end.
  static constexpr int kTermPitch = kStripColumns + kMargin;

  GradientLines lines;
  alignas(16) float rows[2 * kRowFloats];  // one row, s before d
  // The terms of one row of windows, plane by plane.
  alignas(16) float terms[kTermPlanes * kTermPitch];
  WindowInputs windows;
  OutputInputs outputs;
  RingPixelInputs pixels;
  InputPlanes<T> images;
  OutputPlanes<T> planes;
  ErrorWeights<float> errors;
  GradientPiece piece;
  // Sums over all pieces.
  double deficit;
  ExactSum absolute_error;
};

// Where a lane's columns lie in GradientMemory.
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

// The system reserves 1 KiB for each block.
static_assert(kGradientWarps * (sizeof(GradientMemory<float>) + 1024) <= (228 << 10));

}  // namespace syncfree::ssim
