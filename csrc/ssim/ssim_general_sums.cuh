// What one thread of the general path reads and adds up.
#pragma once

#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {

// Outputs of one thread. An accumulator in double takes two registers.
template <class Acc, bool kVolume>
struct ThreadTile {
  static constexpr int kDepth = kVolume ? (sizeof(Acc) == 4 ? 4 : 2) : 1;
  static constexpr int kRows = kVolume ? 4 : (sizeof(Acc) == 4 ? 16 : 8);
};

template <class Acc>
__device__ Acc load_pixel(const Image& image, std::int64_t index) {
  switch (image.dtype) {
    case DType::kFloat64:
      return static_cast<Acc>(__ldg(static_cast<const double*>(image.data) + index));
    case DType::kFloat16:
      return to<Acc>(Half{__ldg(static_cast<const std::uint16_t*>(image.data) + index)});
    case DType::kBFloat16:
      return to<Acc>(BFloat16{__ldg(static_cast<const std::uint16_t*>(image.data) + index)});
    case DType::kUInt8:
      return to<Acc>(__ldg(static_cast<const std::uint8_t*>(image.data) + index));
    default:
      return to<Acc>(__ldg(static_cast<const float*>(image.data) + index));
  }
}

// Moments of one plane (s or d) about pivots inside the windows, so that nothing cancels.
template <class Acc, int kDepth, int kRows>
struct TileSums {
  Acc pivot[kDepth][kRows];
  Acc sum[kDepth][kRows];
  Acc square[kDepth][kRows];

  __device__ void add(int z, int y, Acc weight, Acc mean, Acc variance) {
    const Acc offset = mean - pivot[z][y];
    sum[z][y] = fma(weight, offset, sum[z][y]);
    square[z][y] = fma(weight, fma(offset, offset, variance), square[z][y]);
  }
  __device__ Acc mean(int z, int y) const { return pivot[z][y] + sum[z][y]; }
  __device__ Acc variance(int z, int y) const { return fma(-sum[z][y], sum[z][y], square[z][y]); }
};

// The same for one row of a window, about the pixel in its middle.
template <class Acc>
struct RowSums {
  Acc pivot;
  Acc sum;
  Acc square;

  __device__ void add(Acc weight, Acc x) {
    const Acc offset = x - pivot;
    const Acc weighted = weight * offset;
    sum += weighted;
    square = fma(weighted, offset, square);
  }
  __device__ Acc mean() const { return pivot + sum; }
  __device__ Acc variance() const { return fma(-sum, sum, square); }
};

}  // namespace syncfree::ssim
