// The images of the next scale of a pyramid, from the rows of a strip as they enter.
#pragma once

#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

// Sums of pairs of neighbors in the lane's columns of one row: two of preds, two of target.
template <class Row>
__device__ float4 sums_of_neighbours(const Row& row) {
  return {to<float>(row.a[0]) + to<float>(row.a[1]), to<float>(row.a[2]) + to<float>(row.a[3]),
          to<float>(row.b[0]) + to<float>(row.b[1]), to<float>(row.b[2]) + to<float>(row.b[3])};
}

// A walk takes an odd row together with the next even row, so each even row waits for the odd one
// below it: in shared memory, since registers are scarce. Each lane touches only its own slot.
//
// With `kAligned` widths are multiples of four, so that a lane has either both of its columns or
// none.
template <bool kAligned>
class StripPool {
 public:
  __device__ StripPool(const Job<float>& job, float4* slots)
      : job_(job), waiting_(slots[threadIdx.x]) {}

  // Rows [begin, end), of which `begin` is even.
  __device__ void start(std::int64_t plane, int first_column, int begin, int end) {
    column_ = first_column / 2;
    first_ = plane * (static_cast<int>(job_.geometry.size[1]) / 2) * width() + column_;
    begin_ = begin;
    end_ = end;
  }

  __device__ void take_rows(const float4& odd, const float4& even, int odd_row) {
    const float4 above = waiting_;
    waiting_ = even;
    if (odd_row <= begin_ || odd_row >= end_) return;
    const std::int64_t at = first_ + static_cast<std::int64_t>(odd_row / 2) * width();
    store(job_.pooled_preds + at, 0.25f * (above.x + odd.x), 0.25f * (above.y + odd.y));
    store(job_.pooled_target + at, 0.25f * (above.z + odd.z), 0.25f * (above.w + odd.w));
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
  float4& waiting_;
  std::int64_t first_;  // where the lane's columns of the plane's first row go
  int column_;
  int begin_;
  int end_;
};

}  // namespace syncfree::ssim
