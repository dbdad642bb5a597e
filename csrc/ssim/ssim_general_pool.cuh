// The images of the next scale of a pyramid, on the general path one tile at a time.
#pragma once

#include "ssim/ssim_general_sums.cuh"

namespace syncfree::ssim {

// Part of a plane, or of its pooled image.
struct TileBox {
  std::int64_t begin[3];
  std::int64_t size[3];
};

// How many pixels along each axis become one: two, or one along the depth of a single slice.
struct PoolSteps {
  int step[3];
  __device__ explicit PoolSteps(const Geometry& g) : step{g.size[0] > 1 ? 2 : 1, 2, 2} {}
};

// The mean of the pixels that become (z, y, x).
template <class Acc>
__device__ Acc pooled_pixel(const Image& image, std::int64_t plane, const PoolSteps& pool,
                            std::int64_t z, std::int64_t y, std::int64_t x) {
  const std::int64_t* stride = image.stride;
  const int slices = pool.step[0];
  const std::int64_t at = plane + slices * z * stride[2] + 2 * y * stride[3] + 2 * x * stride[4];
  Acc sum = 0;
  for (int slice = 0; slice < slices; ++slice) {
    const std::int64_t above = at + slice * stride[2], below = above + stride[3];
    sum += (load_pixel<Acc>(image, above) + load_pixel<Acc>(image, above + stride[4])) +
           (load_pixel<Acc>(image, below) + load_pixel<Acc>(image, below + stride[4]));
  }
  return sum * (slices == 1 ? Acc(0.25) : Acc(0.125));
}

// Writes both pooled images within `box`. Called by a whole block. The offsets are those of the
// plane in the job's images.
template <class Acc>
__device__ void pool_tile(const Job<Acc>& job, const PoolSteps& pool, const TileBox& box,
                          std::int64_t plane, std::int64_t preds_offset,
                          std::int64_t target_offset) {
  const Geometry& g = job.geometry;
  const std::int64_t depth = g.size[0] / pool.step[0], height = g.size[1] / 2;
  const std::int64_t width = g.size[2] / 2, end = box.begin[2] + box.size[2];
  for (std::int64_t i = threadIdx.x / 32; i < box.size[0] * box.size[1]; i += blockDim.x / 32) {
    const std::int64_t slice = i / box.size[1];
    const std::int64_t z = box.begin[0] + slice, y = box.begin[1] + i - slice * box.size[1];
    const std::int64_t row = ((plane * depth + z) * height + y) * width;
    for (std::int64_t x = box.begin[2] + threadIdx.x % 32; x < end; x += 32) {
      job.pooled_preds[row + x] = pooled_pixel<Acc>(job.preds, preds_offset, pool, z, y, x);
      job.pooled_target[row + x] = pooled_pixel<Acc>(job.target, target_offset, pool, z, y, x);
    }
  }
}

}  // namespace syncfree::ssim
