// The images of the next scale of a pyramid, from pairs of rows on their way into shared memory.
#pragma once

#include "ssim/ssim_strip_pool.cuh"

namespace syncfree::ssim {

template <bool kAligned>
class TensorPool : public PooledColumns<kAligned> {
 public:
  using PooledColumns<kAligned>::PooledColumns;

  // `row` is even.
  __device__ void take_rows(const float4& above, const float4& below, int row) const {
    if (row >= this->begin_ && row + 1 < this->end_) this->store_mean(above, below, row);
  }
};

}  // namespace syncfree::ssim
