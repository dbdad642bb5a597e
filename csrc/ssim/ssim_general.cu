// General path: kernel, tiling and launch.
#include "ssim/ssim_general.cuh"

#include <algorithm>

namespace syncfree::ssim {
namespace {

__device__ int total_taps(const Window& window) {
  return window.axes[0].taps + window.axes[1].taps + window.axes[2].taps;
}

// Taps of depth, height and width, one after the other.
template <class Acc>
__device__ void write_taps(const Window& window, Acc* taps, int first, int step) {
  for (int i = first; i < total_taps(window); i += step) {
    int axis = 0, k = i;
    while (k >= window.axes[axis].taps) k -= window.axes[axis++].taps;
    taps[i] = static_cast<Acc>(raw_tap(window.axes[axis], k) * window.tap_scale[axis]);
  }
}

template <class Acc>
__global__ void taps_kernel(const __grid_constant__ Window window, Acc* taps) {
  write_taps(window, taps, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

template <class Acc, bool kVolume>
__global__ void __launch_bounds__(kTileThreads, sizeof(Acc) == 4 ? 3 : 2)
    tile_kernel(const __grid_constant__ Job<Acc> job, const __grid_constant__ Window window,
                const __grid_constant__ Tiling tiling, const Acc* tap_memory) {
  __shared__ SharedStage<Acc> stage;
  extern __shared__ __align__(8) unsigned char dynamic[];
  Acc* shared_taps = reinterpret_cast<Acc*>(dynamic);
  if (tap_memory == nullptr) write_taps(window, shared_taps, threadIdx.x, kTileThreads);
  __syncthreads();
  TileWalk<Acc, kVolume> walk(job, window, tiling, tap_memory == nullptr ? shared_taps : tap_memory,
                              stage);
  const std::int64_t total = job.results.images * job.results.units_per_image;
  for (std::int64_t unit = blockIdx.x; unit < total; unit += gridDim.x) walk.run(unit);
}

bool is_volume(const Axis& depth, std::int64_t map_depth) {
  return map_depth > 1 || depth.taps > 1;
}

template <class Acc>
Tiling make_tiling(const Geometry& geometry, bool volume) {
  const std::int64_t width = geometry.map[2];
  const int columns = width <= 32 ? kNarrowestTile : (width <= 64 ? 64 : kTileThreads);
  const int groups = kTileThreads / columns;
  const int depth = volume ? ThreadTile<Acc, true>::kDepth : ThreadTile<Acc, false>::kDepth;
  const int rows = volume ? ThreadTile<Acc, true>::kRows : ThreadTile<Acc, false>::kRows;
  const auto pieces = [](std::int64_t size, std::int64_t piece) {
    return (size + piece - 1) / piece;
  };
  return {columns,
          groups,
          {pieces(geometry.map[0], depth), pieces(geometry.map[1], groups * rows),
           pieces(width, columns)}};
}

}  // namespace

template <class Acc>
std::int64_t general_units_per_image(const Geometry& geometry, const Window& window) {
  const Tiling tiling = make_tiling<Acc>(geometry, is_volume(window.axes[0], geometry.map[0]));
  return geometry.channels * tiling.count[0] * tiling.count[1] * tiling.count[2];
}

template <class Acc>
cudaError_t launch_general(const Job<Acc>& job, const Window& window, Acc* tap_memory,
                           cudaStream_t stream) {
  const int taps = window.axes[0].taps + window.axes[1].taps + window.axes[2].taps;
  const bool taps_fit = taps <= kSharedTaps;
  if (taps_fit)
    tap_memory = nullptr;
  else
    taps_kernel<Acc><<<32, 256, 0, stream>>>(window, tap_memory);
  const std::size_t shared = taps_fit ? taps * sizeof(Acc) : 0;
  const std::int64_t total = job.results.images * job.results.units_per_image;
  const unsigned blocks = static_cast<unsigned>(std::min<std::int64_t>(total, INT32_MAX));
  const bool volume = is_volume(window.axes[0], job.geometry.map[0]);
  const Tiling tiling = make_tiling<Acc>(job.geometry, volume);
  if (volume)
    tile_kernel<Acc, true>
        <<<blocks, kTileThreads, shared, stream>>>(job, window, tiling, tap_memory);
  else
    tile_kernel<Acc, false>
        <<<blocks, kTileThreads, shared, stream>>>(job, window, tiling, tap_memory);
  return cudaGetLastError();
}

template std::int64_t general_units_per_image<float>(const Geometry&, const Window&);
template std::int64_t general_units_per_image<double>(const Geometry&, const Window&);
template cudaError_t launch_general(const Job<float>&, const Window&, float*, cudaStream_t);
template cudaError_t launch_general(const Job<double>&, const Window&, double*, cudaStream_t);

}  // namespace syncfree::ssim
