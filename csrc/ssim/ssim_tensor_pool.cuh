// The images of the next scale of a pyramid, from pairs of rows on their way into shared memory.
#pragma once

#include "ssim/ssim_strip_pool.cuh"

namespace syncfree::ssim {

// With `kAligned` widths are multiples of four, so that a lane has both of its columns or none.
template <bool kAligned>
class TensorPool {
 public:
  __device__ explicit TensorPool(const Job<float>& job) : job_(job) {}

  // Rows [begin, end), of which `begin` is even.
  __device__ void start(std::int64_t plane, int first_column, int begin, int end) {
    column_ = first_column / 2;
    first_ = plane * (static_cast<int>(job_.geometry.size[1]) / 2) * width() + column_;
    begin_ = begin;
    end_ = end;
  }

  // `row` is even.
  __device__ void take_rows(const float4& above, const float4& below, int row) const {
    if (row < begin_ || row + 1 >= end_) return;
    const std::int64_t at = first_ + static_cast<std::int64_t>(row / 2) * width();
    store(job_.pooled_preds + at, 0.25f * (above.x + below.x), 0.25f * (above.y + below.y));
    store(job_.pooled_target + at, 0.25f * (above.z + below.z), 0.25f * (above.w + below.w));
  }

 private:
  __device__ int width() const { return static_cast<int>(job_.geometry.size[2]) / 2; }

  __device__ void store(float* to, float left, float right) const {
    if constexpr (kAligned) {
      if (column_ < width()) *reinterpret_cast<float2*>(to) = {left, right};
    } else {
      if (column_ < width()) to[0] = left;
      if (column_ + 1 < width()) to[1] = right;
    }
  }

  const Job<float>& job_;
  std::int64_t first_;  // where the lane's columns of the plane's first row go
  int column_;
  int begin_;
  int end_;
};

}  // namespace syncfree::ssim
