// Fast path: one warp walks down a strip of 128 columns, a lane owns four of them.
//
// Rows of s and d pass through shared memory once, so that each lane sees its neighbours' columns;
// everything else lives in registers. The units of all strips form one line that the warps of a
// persistent grid cut evenly.
#pragma once

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_rows.cuh"
#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

inline constexpr int kStripWarps = 2;  // of a block: more or fewer are slower
inline constexpr int kStripThreads = 32 * kStripWarps;
inline constexpr int kStripBlocksPerMultiprocessor = 4;  // all registers: 255 for each of 8 warps

// A row of s or d in shared memory, its first column at kMargin to keep vectors aligned.
inline constexpr int kMargin = 8;
inline constexpr int kRowFloats = kStripColumns + 2 * kMargin;

struct SharedRow {
  alignas(16) float s[kRowFloats];
  alignas(16) float d[kRowFloats];
};

template <class Rows, bool kExtras>
class StripWalk {
 public:
  __device__ StripWalk(const Job<float>& job, const StripUnits& units, SharedRow (&shared)[2],
                       const Constants<float>& constants)
      : job_(job),
        units_(units),
        shared_(shared),
        constants_(constants),
        outputs_(job, constants) {}

  // Units [first, first + count), one below the other in one strip.
  __device__ void run(std::int64_t first, int count) {
    const Geometry& g = job_.geometry;
    const std::int64_t strip = first / units_.blocks;
    const std::int64_t plane = strip / units_.strips;
    const int strip_begin = static_cast<int>(strip - plane * units_.strips) * kStripColumns;
    const int begin = static_cast<int>(first - strip * units_.blocks) * units_.rows_per_block;
    const LaneColumns columns(strip_begin, static_cast<int>(g.size[2]));
    begin_ = begin;
    end_ = min(begin + count * units_.rows_per_block, static_cast<int>(g.size[1]));
    inside_ = columns.inside;
    halo_slot_ = columns.halo_slot;
    outputs_.start(plane, columns.first);

    const std::int64_t image = plane / g.channels;
    Rows rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns,
              begin - kHalo - 2);
    RowData<typename Rows::Element> above[2], ahead[2];
    rows.next(above[0]);
    rows.next(above[1]);
    rows.next(ahead[0]);
    rows.next(ahead[1]);
    s_.clear();
    d_.clear();
    d_has_pivot_ = false;
    see_row<0>(above[0]);
    see_row<1>(above[1]);

    std::int64_t unit = first;
    const int last_row_of_block = units_.rows_per_block - 1;  // of a power of two
    const int pairs = (end_ - begin + 2 * kHalo + 1) / 2;
    for (int pair = 0; pair < pairs; ++pair) {
      const int row = begin - kHalo + 2 * pair;
      move_pivots();
      take_row<0>(rows, ahead[0], row);
      take_row<1>(rows, ahead[1], row + 1);
      const int done = 2 * pair + 2 - 2 * kHalo;
      if (done > 0 && ((done & last_row_of_block) == 0 || pair == pairs - 1))
        outputs_.flush(unit++);
    }
    complete_units(job_.results, image, count);
  }

 private:
  // Row r enters and the outputs of row r - 5 leave.
  template <int kParity>
  __device__ void take_row(Rows& rows, RowData<typename Rows::Element>& data, int row) {
    float s[kWindowColumns], d[kWindowColumns];
    SharedRow& shared = shared_[kParity];
    const SumDifference halo = convert(data, s + kHalo, d + kHalo);
    rows.next(data);
    store_row(shared, s + kHalo, d + kHalo, halo);
    add_to_pair<kParity>(s + kHalo, d + kHalo);
    if constexpr (kExtras) outputs_.add_errors(d + kHalo, row, begin_);
    __syncwarp();

    StripMoments sums;
    load_neighbours(shared.s, s);
    s_.add_row(s, true, sums.s, sums.ss);
    load_neighbours(shared.d, d);
    d_.add_row(d, d_has_pivot_, sums.d, sums.dd);
    const int y = row - kHalo;
    if (y >= begin_ && y < end_) outputs_.add_row(sums, s_.pivot(), d_.pivot(), y);
  }

  struct SumDifference {
    float s;
    float d;
  };
  __device__ SumDifference sum_difference(float a, float b) const {
    if constexpr (kExtras) {
      if (job_.clamp.enabled) {
        a = job_.clamp(a);
        b = job_.clamp(b);
      }
    }
    return {__fmul_rn(a + b, constants_.scale), a - b};
  }

  // Own columns to `s` and `d`; the halo of both images is in different lanes until here.
  template <class T>
  __device__ SumDifference convert(const RowData<T>& data, float* s, float* d) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const SumDifference x = sum_difference(to<float>(data.a[c]), to<float>(data.b[c]));
      s[c] = x.s;
      d[c] = x.d;
    }
    const float halo = to<float>(data.halo);
    return sum_difference(halo, __shfl_down_sync(0xffffffffu, halo, 16));
  }

  __device__ void store_row(SharedRow& row, const float* s, const float* d,
                            const SumDifference& halo) const {
    const int lane = threadIdx.x % 32;
    const int column = kMargin + kColumns * lane;
    if (inside_) {
      *reinterpret_cast<float4*>(row.s + column) = make_float4(s[0], s[1], s[2], s[3]);
      *reinterpret_cast<float4*>(row.d + column) = make_float4(d[0], d[1], d[2], d[3]);
    }
    if (lane < 2 * kHalo) {
      row.s[kMargin + halo_slot_] = halo.s;
      row.d[kMargin + halo_slot_] = halo.d;
    }
  }

  template <int kParity, class T>
  __device__ void see_row(const RowData<T>& data) {
    float s[kColumns], d[kColumns];
    convert(data, s, d);
    add_to_pair<kParity>(s, d);
  }

  // The lane's own columns are in place; what lies left and right of them comes from the row.
  __device__ static void load_neighbours(const float* row, float (&x)[kWindowColumns]) {
    const float* own = row + kMargin + kColumns * (threadIdx.x % 32);
    const float4 left = *reinterpret_cast<const float4*>(own - 4);
    const float4 right = *reinterpret_cast<const float4*>(own + kColumns);
    x[0] = own[-5];
    x[1] = left.x, x[2] = left.y, x[3] = left.z, x[4] = left.w;
    x[9] = right.x, x[10] = right.y, x[11] = right.z, x[12] = right.w;
    x[13] = own[kColumns + 4];
  }

  // Pivots come from the lane's columns in the two rows that entered last, which lie close to the
  // middle of the windows about to be complete, and from nothing else: it does not matter where the
  // warp began. d is close to zero where the images resemble each other and needs none there.
  __device__ void move_pivots() {
    constexpr StripTaps kTaps;
    constexpr float kRange = static_cast<float>(1.0 / (kTaps.row_sum * kTaps.row_sum));
    // Not beside an infinity, a NaN or an extreme outlier: windows without it would suffer.
    constexpr float kLimit = 1024.0f * kRange;
    constexpr float kSmall = 0.1f * kRange;
    const float s = pair_sum_s_ * (0.5f / kColumns);
    const float d = pair_sum_d_ * (0.5f / kColumns);
    const float d_size = fabsf(d) * constants_.scale;
    s_.move_pivot(fabsf(s) < kLimit ? s : 0.0f);
    const float d_pivot = d_size > kSmall && d_size < kLimit ? d : 0.0f;
    if (__any_sync(0xffffffffu, d_pivot != d_.pivot())) {
      d_.move_pivot(d_pivot);
      d_has_pivot_ = __any_sync(0xffffffffu, d_pivot != 0.0f);
    }
  }

  template <int kParity>
  __device__ void add_to_pair(const float* s, const float* d) {
    const float sum_s = (s[0] + s[1]) + (s[2] + s[3]);
    const float sum_d = (d[0] + d[1]) + (d[2] + d[3]);
    pair_sum_s_ = kParity == 0 ? sum_s : pair_sum_s_ + sum_s;
    pair_sum_d_ = kParity == 0 ? sum_d : pair_sum_d_ + sum_d;
  }

  const Job<float>& job_;
  const StripUnits& units_;
  SharedRow (&shared_)[2];
  const Constants<float>& constants_;
  WindowSums s_;
  WindowSums d_;
  bool d_has_pivot_;  // the same in the whole warp
  float pair_sum_s_;
  float pair_sum_d_;
  StripOutputs<kExtras> outputs_;
  int begin_;
  int end_;
  int halo_slot_;
  bool inside_;
};

template <class Rows, bool kExtras>
__global__ void __launch_bounds__(kStripThreads, kStripBlocksPerMultiprocessor)
    strip_kernel(const __grid_constant__ Job<float> job, const __grid_constant__ StripUnits units) {
  __shared__ SharedRow shared[kStripWarps][2];
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kStripWarps;
  const std::int64_t warp = blockIdx.x * kStripWarps + threadIdx.x / 32;
  const std::int64_t total = job.results.images * job.results.units_per_image;
  std::int64_t unit = total * warp / warps;
  const std::int64_t end = total * (warp + 1) / warps;
  __shared__ Constants<float> constants;
  if (threadIdx.x == 0)
    constants = job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants;
  __syncthreads();
  StripWalk<Rows, kExtras> walk(job, units, shared[threadIdx.x / 32], constants);
  while (unit < end) {
    const std::int64_t left_in_strip = units.blocks - unit % units.blocks;
    const int count = static_cast<int>(min(left_in_strip, end - unit));
    walk.run(unit, count);
    unit += count;
  }
}

}  // namespace syncfree::ssim
