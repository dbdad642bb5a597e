// General path: any window, two or three dimensions, float or double, any mix of types and strides.
//
// A block owns a tile of the map. It walks through the input rows that the tile's windows cover, a
// few at a time in shared memory. A thread filters each row horizontally for its column and adds
// the result to those of its outputs whose windows hold that row.
#pragma once

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_general_pool.cuh"
#include "ssim/ssim_general_sums.cuh"
#include "ssim/ssim_terms.cuh"

namespace syncfree::ssim {

inline constexpr int kTileThreads = 128;
inline constexpr int kStageRows = 4;
inline constexpr int kTapChunk = 64;  // wider windows pass through shared memory in chunks

// The threads of a tile: `groups` of them, one below the other, each with `columns` threads side by
// side.
struct Tiling {
  int columns;
  int groups;
  std::int64_t count[3];  // tiles along depth, height, width
};

inline constexpr int kNarrowestTile = 32;
inline constexpr int kStageElements =
    kTileThreads / kNarrowestTile * kStageRows * (kNarrowestTile + kTapChunk - 1);

template <class Acc>
struct SharedStage {
  Acc s[kStageElements];
  Acc d[kStageElements];
};

template <class Acc, bool kVolume>
class TileWalk {
 public:
  __device__ TileWalk(const Job<Acc>& job, const Window& window, const Tiling& tiling,
                      const Acc* taps, SharedStage<Acc>& stage)
      : job_(job),
        window_(window),
        tiling_(tiling),
        stage_(stage),
        constants_(job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants),
        depth_taps_(taps),
        row_taps_(depth_taps_ + window.axes[0].taps),
        column_taps_(row_taps_ + window.axes[1].taps),
        column_(threadIdx.x % tiling.columns),
        group_(threadIdx.x / tiling.columns) {}

  __device__ void run(std::int64_t unit) {
    place(unit);
    start_outputs();
    const int slices =
        static_cast<int>(min(std::int64_t{kDepth}, job_.geometry.map[0] - first_[0])) +
        window_.axes[0].taps - 1;
    const int rows = kRows + window_.axes[1].taps - 1;
    for (int slice = 0; slice < slices; ++slice)
      for (int row = 0; row < rows; row += kStageRows) take_rows(slice, row);
    finish(unit);
  }

 private:
  static constexpr int kDepth = ThreadTile<Acc, kVolume>::kDepth;
  static constexpr int kRows = ThreadTile<Acc, kVolume>::kRows;

  struct Pixel {
    Acc s;
    Acc d;
  };

  __device__ void place(std::int64_t unit) {
    const std::int64_t* tiles = tiling_.count;
    std::int64_t rest = unit / tiles[2];
    tile_[2] = unit - rest * tiles[2];
    tile_[1] = rest % tiles[1];
    rest /= tiles[1];
    tile_[0] = rest % tiles[0];
    plane_ = rest / tiles[0];
    image_ = plane_ / job_.geometry.channels;
    const std::int64_t channel = plane_ - image_ * job_.geometry.channels;
    preds_offset_ = image_ * job_.preds.stride[0] + channel * job_.preds.stride[1];
    target_offset_ = image_ * job_.target.stride[0] + channel * job_.target.stride[1];
    first_[0] = tile_[0] * kDepth;
    first_[1] = (tile_[1] * tiling_.groups + group_) * kRows;
    first_[2] = tile_[2] * tiling_.columns;
  }

  // The pixel at position i of the padded axis. Further on, any pixel of the image, as it is not
  // used.
  __device__ std::int64_t source(int axis, std::int64_t i) const {
    const std::int64_t size = job_.geometry.size[axis];
    return mirror(min(i, size - 1 + window_.axes[axis].pad), size);
  }

  __device__ Pixel read(std::int64_t z, std::int64_t y, std::int64_t x) const {
    const std::int64_t* p = job_.preds.stride;
    const std::int64_t* t = job_.target.stride;
    const Acc a =
        job_.clamp(load_pixel<Acc>(job_.preds, preds_offset_ + z * p[2] + y * p[3] + x * p[4]));
    const Acc b =
        job_.clamp(load_pixel<Acc>(job_.target, target_offset_ + z * t[2] + y * t[3] + x * t[4]));
    return {(a + b) * constants_.scale, (a - b) * constants_.scale};
  }

  // Whether the pixels beside the middle of a window say as much about its mean as the middle one:
  // not if that has most of the weight.
  __device__ bool neighbours_count(int axis) const { return window_.tap_scale[axis] < 0.5; }

  // The pixel in the middle of an output's window, or `step` beside it if the neighbors count.
  __device__ std::int64_t middle(int axis, std::int64_t output, int step) const {
    const Axis& a = window_.axes[axis];
    return source(axis, output - a.pad + a.taps / 2 + (neighbours_count(axis) ? step : 0));
  }

  __device__ Pixel mean_of_three(std::int64_t z, std::int64_t y) const {
    Pixel sum{0, 0};
    for (int step = -1; step <= 1; ++step) {
      const Pixel pixel = read(z, y, middle(2, first_[2] + column_, step));
      sum.s += pixel.s;
      sum.d += pixel.d;
    }
    return {sum.s * Acc(1.0 / 3.0), sum.d * Acc(1.0 / 3.0)};
  }

  // The pivot of an output is the mean of up to nine pixels in the middle of its window.
  __device__ void start_outputs() {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const std::int64_t z = middle(0, first_[0] + i, 0);
      Pixel above = mean_of_three(z, middle(1, first_[1], -1));
      Pixel here = mean_of_three(z, middle(1, first_[1], 0));
#pragma unroll
      for (int y = 0; y < kRows; ++y) {
        const Pixel below = mean_of_three(z, middle(1, first_[1] + y, 1));
        if (!neighbours_count(1)) above = here = below;
        s_.pivot[i][y] = (above.s + here.s + below.s) * Acc(1.0 / 3.0);
        d_.pivot[i][y] = (above.d + here.d + below.d) * Acc(1.0 / 3.0);
        s_.sum[i][y] = s_.square[i][y] = d_.sum[i][y] = d_.square[i][y] = Acc(0);
        above = here;
        here = below;
      }
    }
  }

  // Adds the rows [row, row + kStageRows) of one slice, counted from the first row that the
  // thread's windows hold.
  __device__ void take_rows(int slice, int row) {
    RowSums<Acc> s[kStageRows], d[kStageRows];
    const int taps = window_.axes[2].taps;
    const int chunks = (taps + kTapChunk - 1) / kTapChunk;
    const int middle_tap = taps / 2;
    // The chunk with the middle of the window comes first: it has the pivots.
    for (int i = 0; i < chunks; ++i) {
      const int chunk = (middle_tap / kTapChunk + i) % chunks;
      const int begin = chunk * kTapChunk;
      const int count = min(kTapChunk, taps - begin);
      const int pitch = tiling_.columns + count - 1;
      __syncthreads();
      fill_stage(slice, row, begin, pitch);
      __syncthreads();
      const int own = group_ * kStageRows * pitch + column_;
      if (i == 0) {
#pragma unroll
        for (int r = 0; r < kStageRows; ++r) {
          const int at = own + r * pitch + middle_tap - begin;
          s[r] = {stage_.s[at], Acc(0), Acc(0)};
          d[r] = {stage_.d[at], Acc(0), Acc(0)};
        }
      }
#pragma unroll 1
      for (int k = 0; k < count; ++k) {
        const Acc weight = column_taps_[begin + k];
#pragma unroll
        for (int r = 0; r < kStageRows; ++r) {
          s[r].add(weight, stage_.s[own + r * pitch + k]);
          d[r].add(weight, stage_.d[own + r * pitch + k]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kStageRows; ++r) add_row(slice, row + r, s[r], d[r]);
  }

  __device__ void fill_stage(int slice, int row, int begin, int pitch) {
    const std::int64_t z = source(0, first_[0] - window_.axes[0].pad + slice);
    const std::int64_t y = tile_[1] * tiling_.groups * kRows - window_.axes[1].pad + row;
    const std::int64_t x = first_[2] - window_.axes[2].pad + begin;
    const int elements = tiling_.groups * kStageRows * pitch;
    for (int i = threadIdx.x; i < elements; i += kTileThreads) {
      const int stage_row = i / pitch;
      const int group = stage_row / kStageRows;
      const Pixel pixel = read(z, source(1, y + group * kRows + stage_row % kStageRows),
                               source(2, x + i - stage_row * pitch));
      stage_.s[i] = pixel.s;
      stage_.d[i] = pixel.d;
    }
  }

  // Rows outside a window are skipped, not weighted by zero: they may hold a NaN.
  __device__ void add_row(int slice, int row, const RowSums<Acc>& s, const RowSums<Acc>& d) {
    const Acc mean_s = s.mean(), variance_s = s.variance();
    const Acc mean_d = d.mean(), variance_d = d.variance();
#pragma unroll
    for (int z = 0; z < kDepth; ++z) {
      const int depth_tap = slice - z;
      if (depth_tap < 0 || depth_tap >= window_.axes[0].taps) continue;
      const Acc depth_weight = depth_taps_[depth_tap];
#pragma unroll
      for (int y = 0; y < kRows; ++y) {
        const int row_tap = row - y;
        if (row_tap < 0 || row_tap >= window_.axes[1].taps) continue;
        const Acc weight = depth_weight * row_taps_[row_tap];
        s_.add(z, y, weight, mean_s, variance_s);
        d_.add(z, y, weight, mean_d, variance_d);
      }
    }
  }

  __device__ void finish(std::int64_t unit) {
    const Geometry& g = job_.geometry;
    double* const* slots = job_.results.slots;
    const bool wants_value = slots[kDeficit] != nullptr;
    const bool wants_contrast = slots[kContrastDeficit] != nullptr;
    Acc deficit = 0, contrast = 0;
    const std::int64_t x = first_[2] + column_;
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const std::int64_t z = first_[0] + i, y = first_[1] + j;
        if (z >= g.map[0] || y >= g.map[1] || x >= g.map[2]) continue;
        const Terms<Acc> terms =
            make_terms(s_.mean(i, j), s_.variance(i, j), d_.mean(i, j), d_.variance(i, j),
                       constants_.twice_c1, constants_.twice_c2);
        const Acc numerator = deficit_numerator(terms);
        const Acc half = wants_value ? numerator / deficit_denominator(terms, numerator) : Acc(0);
        deficit += half;
        if (job_.map != nullptr) {
          const Acc ssim = fma(Acc(-2), half, Acc(1));
          const std::int64_t at = ((plane_ * g.map[0] + z) * g.map[1] + y) * g.map[2] + x;
          store_map_value(job_, at, ssim);
        }
        if (wants_contrast && in_crop(0, z) && in_crop(1, y) && in_crop(2, x))
          contrast += terms.vd / contrast_denominator(terms);
      }
    if (wants_value) write(slots[kDeficit], unit, 2.0 * static_cast<double>(deficit));
    if (wants_contrast) write(slots[kContrastDeficit], unit, 2.0 * static_cast<double>(contrast));
    if (slots[kSquaredError] != nullptr || slots[kAbsoluteError] != nullptr) write_errors(unit);
    if (job_.pooled_preds != nullptr) write_pooled();
    if (threadIdx.x < 32) complete_units(job_.results, image_, 1, threadIdx.x == 0);
  }

  __device__ bool in_crop(int axis, std::int64_t i) const {
    const Geometry& g = job_.geometry;
    return i >= g.crop[axis] && i < g.map[axis] - g.crop[axis];
  }

  // The pixels at the positions of the tile's outputs; the last tile along an axis takes what is
  // left. With `step` = 2, the pairs of pixels that begin there, since all tiles have even sizes.
  __device__ TileBox own_pixels(const int (&step)[3]) const {
    const int extent[3] = {kDepth, tiling_.groups * kRows, tiling_.columns};
    TileBox box;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t input = job_.geometry.size[axis];
      const std::int64_t begin = tile_[axis] * extent[axis];
      const std::int64_t end =
          tile_[axis] == tiling_.count[axis] - 1 ? input : min(begin + extent[axis], input);
      box.begin[axis] = begin / step[axis];
      box.size[axis] = max(end / step[axis] - box.begin[axis], std::int64_t{0});
    }
    return box;
  }

  __device__ void write_pooled() const {
    const PoolSteps pool(job_.geometry);
    pool_tile(job_, pool, own_pixels(pool.step), plane_, preds_offset_, target_offset_);
  }

  __device__ void write_errors(std::int64_t unit) const {
    const auto [begin, size] = own_pixels({1, 1, 1});
    Acc squared = 0, absolute = 0;
    const std::int64_t pixels = size[0] * size[1] * size[2];
    for (std::int64_t i = threadIdx.x; i < pixels; i += kTileThreads) {
      const std::int64_t row = i / size[2], slice = row / size[1];
      const Acc d =
          read(begin[0] + slice, begin[1] + row - slice * size[1], begin[2] + i - row * size[2]).d;
      squared = fma(d, d, squared);
      absolute += fabs(d);
    }
    double* const* slots = job_.results.slots;
    const double unscaled = 1.0 / static_cast<double>(constants_.scale);
    if (slots[kSquaredError] != nullptr)
      write(slots[kSquaredError], unit, static_cast<double>(squared) * unscaled * unscaled);
    if (slots[kAbsoluteError] != nullptr)
      write(slots[kAbsoluteError], unit, static_cast<double>(absolute) * unscaled);
  }

  __device__ static void write(double* slots, std::int64_t unit, double x) {
    const double sum = block_sum<kTileThreads>(x);
    if (threadIdx.x == 0) slots[unit] = sum;
  }

  const Job<Acc>& job_;
  const Window& window_;
  const Tiling& tiling_;
  SharedStage<Acc>& stage_;
  const Constants<Acc> constants_;
  const Acc* depth_taps_;
  const Acc* row_taps_;
  const Acc* column_taps_;
  const int column_;
  const int group_;
  std::int64_t tile_[3];
  std::int64_t first_[3];  // first output of this thread; for the width, of the tile
  std::int64_t plane_;
  std::int64_t image_;
  std::int64_t preds_offset_;
  std::int64_t target_offset_;
  TileSums<Acc, kDepth, kRows> s_;
  TileSums<Acc, kDepth, kRows> d_;
};

}  // namespace syncfree::ssim
