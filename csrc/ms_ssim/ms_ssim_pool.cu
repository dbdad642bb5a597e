// Pooling of several scales in one launch. Each warp owns a tile of 32 x 16 pixels and computes all
// means over 2 x 2 up to 16 x 16 of its pixels, so that no warp needs another's.
#include "ms_ssim/ms_ssim_pool.h"

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/early_launch.cuh"
#include "ms_ssim/ms_ssim_pyramid.h"
#include "ssim/pixel_types.h"

namespace syncfree::ms_ssim {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr int kThreads = 32 * kWarps;
constexpr int kSide = 4;               // of the square of pixels that a thread has
constexpr int kAcross = 8, kDown = 4;  // threads of a warp
constexpr int kMostLevels = 4;
constexpr unsigned kWarp = 0xffffffffu;

struct PooledImage {
  const void* pixels;
  std::int64_t stride[5];
  float* levels[kMostLevels];
};

struct Job {
  PooledImage images[2];
  std::int64_t channels;
  std::int64_t planes;
  int height;
  int width;
  int levels;
  int tiles_across;
  int tiles_down;
};

// The order of additions is that of all other passes that pool: rows first.
__device__ float mean_of_four(float above_left, float above_right, float below_left,
                              float below_right) {
  return 0.25f * ((above_left + above_right) + (below_left + below_right));
}

// The same over four lanes; `right` and `below` are the bits in which their numbers differ.
__device__ float mean_of_lanes(float x, int right, int below) {
  const float row = x + __shfl_xor_sync(kWarp, x, right);
  return 0.25f * (row + __shfl_xor_sync(kWarp, row, below));
}

template <class T>
class Tile {
 public:
  __device__ Tile(const Job& job, std::int64_t tile) : job_(job) {
    const std::int64_t row = tile / job.tiles_across;
    plane_ = row / job.tiles_down;
    const int lane = threadIdx.x % 32;
    x_ = static_cast<int>(tile - row * job.tiles_across) * kAcross + lane % kAcross;
    y_ = static_cast<int>(row - plane_ * job.tiles_down) * kDown + lane / kAcross;
  }

  __device__ void pool(const PooledImage& image) const {
    float pixels[kSide][kSide];
    load(image, pixels);
    float level[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        level[i][j] = mean_of_four(pixels[2 * i][2 * j], pixels[2 * i][2 * j + 1],
                                   pixels[2 * i + 1][2 * j], pixels[2 * i + 1][2 * j + 1]);
        store(image, 0, 2 * y_ + i, 2 * x_ + j, level[i][j]);
      }
    if (job_.levels == 1) return;
    const float quarter = mean_of_four(level[0][0], level[0][1], level[1][0], level[1][1]);
    store(image, 1, y_, x_, quarter);
    if (job_.levels == 2) return;
    const float eighth = mean_of_lanes(quarter, 1, kAcross);
    if (x_ % 2 == 0 && y_ % 2 == 0) store(image, 2, y_ / 2, x_ / 2, eighth);
    if (job_.levels == 3) return;
    const float sixteenth = mean_of_lanes(eighth, 2, 2 * kAcross);
    if (x_ % 4 == 0 && y_ % 4 == 0) store(image, 3, y_ / 4, x_ / 4, sixteenth);
  }

 private:
  // Reads some pixel of the image for each place beyond its border; no mean of those is stored.
  __device__ void load(const PooledImage& image, float (&pixels)[kSide][kSide]) const {
    const std::int64_t number = plane_ / job_.channels;
    const T* const plane = static_cast<const T*>(image.pixels) + number * image.stride[0] +
                           (plane_ - number * job_.channels) * image.stride[1];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const T* const row = plane + min(kSide * y_ + i, job_.height - 1) * image.stride[3];
#pragma unroll
      for (int j = 0; j < kSide; ++j)
        pixels[i][j] = to<float>(row[min(kSide * x_ + j, job_.width - 1) * image.stride[4]]);
    }
  }

  __device__ void store(const PooledImage& image, int level, int y, int x, float mean) const {
    const int height = job_.height >> (level + 1), width = job_.width >> (level + 1);
    if (y < height && x < width) image.levels[level][(plane_ * height + y) * width + x] = mean;
  }

  const Job& job_;
  std::int64_t plane_;
  int x_;  // of the thread's square, in squares
  int y_;
};

template <class T>
__global__ void __launch_bounds__(kThreads) pool_kernel(const __grid_constant__ Job job) {
  wait_for_kernel_ahead();
  const std::int64_t total = job.planes * job.tiles_down * job.tiles_across;
  const std::int64_t warps = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < total;
       i += warps) {
    const Tile<T> tile(job, i);
    tile.pool(job.images[0]);
    tile.pool(job.images[1]);
  }
}

Job make_job(const Problem& problem, int finest, int levels) {
  const ssim::Problem scale = scale_images(problem, finest);
  Job job;
  void* const pyramids[2] = {problem.preds_pyramid, problem.target_pyramid};
  for (int i = 0; i < 2; ++i) {
    const TensorView& view = i == 0 ? scale.preds : scale.target;
    job.images[i].pixels = view.data;
    std::copy_n(view.stride, 5, job.images[i].stride);
    for (int level = 0; level < levels; ++level)
      job.images[i].levels[level] =
          static_cast<float*>(pooled_data(problem, pyramids[i], finest + 1 + level));
  }
  job.channels = scale.preds.size[1];
  job.planes = scale.preds.size[0] * job.channels;
  job.height = static_cast<int>(scale.preds.size[3]);
  job.width = static_cast<int>(scale.preds.size[4]);
  job.levels = levels;
  const auto tiles = [](int size, int tile) { return (size + tile - 1) / tile; };
  job.tiles_across = tiles(job.width, kSide * kAcross);
  job.tiles_down = tiles(job.height, kSide * kDown);
  return job;
}

}  // namespace

cudaError_t pool_scales(const Problem& problem, int finest, cudaStream_t stream) {
  for (const int last = problem.exponents.scales - 1; finest < last; finest += kMostLevels) {
    const Job job = make_job(problem, finest, std::min(last - finest, kMostLevels));
    const std::int64_t tiles = job.planes * job.tiles_down * job.tiles_across;
    const unsigned blocks =
        static_cast<unsigned>(std::min<std::int64_t>((tiles + kWarps - 1) / kWarps, INT32_MAX));
    const DType dtype = finest == 0 ? problem.preds.dtype : DType::kFloat32;
    const cudaError_t error = ssim::dispatch_pixels(dtype, [&]<class T>(TypeTag<T>) {
      return launch_early(pool_kernel<T>, blocks, kThreads, 0, stream, job);
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace syncfree::ms_ssim
