// Fast path: one warp walks down a strip of 128 columns, a lane owns four of them.
//
// Rows of s and d pass through shared memory once, so that each lane sees its neighbours' columns;
// everything else lives in registers. The units of all strips form one line that the warps of a
// persistent grid cut evenly.
#pragma once

#include <algorithm>

#include "core/device_info.h"
#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_pool.cuh"
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

template <class Rows, StripTask kTask>
class StripWalk {
 public:
  __device__ StripWalk(const Job<float>& job, const StripUnits& units, SharedRow (&shared)[2],
                       float4* pool_slots, const Constants<float>& constants)
      : job_(job),
        units_(units),
        shared_(shared),
        constants_(constants),
        outputs_(job, constants),
        pool_(job, pool_slots) {}

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
    first_output_ = begin_;
    end_output_ = end_;
    if (outputs_.leaves_border_out()) {
      first_output_ = max(begin_, kHalo);
      end_output_ = min(end_, static_cast<int>(g.size[1]) - kHalo);
    }
    inside_ = columns.inside;
    halo_slot_ = columns.halo_slot;
    outputs_.start(plane, columns.first);
    if constexpr (kPools) pool_.start(plane, columns.first, begin_, end_);

    const std::int64_t image = plane / g.channels;
    Rows rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns,
              begin - kHalo);
    RowData<typename Rows::Element> ahead[2];
    rows.next(ahead[0]);
    rows.next(ahead[1]);
    s_.clear();
    d_.clear();
    d_has_pivot_ = false;
    levels_[0] = levels_[1] = {0.0f, 0.0f};

    std::int64_t unit = first;
    const int last_row_of_block = units_.rows_per_block - 1;  // of a power of two
    const int pairs = (end_ - begin + 2 * kHalo + 1) / 2;
    for (int pair = 0; pair < pairs; ++pair) {
      const int row = begin - kHalo + 2 * pair;
      __syncwarp();
      float4 neighbours[2];
      const SumDifference first = share_row(rows, ahead[0], shared_[0], neighbours[0]);
      const SumDifference second = share_row(rows, ahead[1], shared_[1], neighbours[1]);
      __syncwarp();
      if constexpr (kPools) pool_.take_rows(neighbours[0], neighbours[1], row);
      move_pivots({first.s + second.s, first.d + second.d});
      take_row(shared_[0], row);
      take_row(shared_[1], row + 1);
      const int done = 2 * pair + 2 - 2 * kHalo;
      if (done > 0 && ((done & last_row_of_block) == 0 || pair == pairs - 1))
        outputs_.flush(unit++);
    }
    complete_units(job_.results, image, count);
  }

 private:
  static constexpr bool kPools = kIsScale<kTask>;

  struct SumDifference {
    float s;
    float d;
  };

  // Puts a row into shared memory and asks for the one after the next; gives the sums of the lane's
  // columns.
  __device__ SumDifference share_row(Rows& rows, RowData<typename Rows::Element>& data,
                                     SharedRow& row, float4& neighbours) {
    float s[kColumns], d[kColumns];
    const SumDifference halo = convert(data, s, d);
    if constexpr (kPools) neighbours = sums_of_neighbours(data);
    rows.next(data);
    store_row(row, s, d, halo);
    return {(s[0] + s[1]) + (s[2] + s[3]), (d[0] + d[1]) + (d[2] + d[3])};
  }

  // Row r enters and the outputs of row r - 5 leave.
  __device__ void take_row(const SharedRow& shared, int row) {
    float x[kWindowColumns];
    StripMoments sums;
    load_window(shared.s, x);
    s_.add_row(x, true, sums.s, sums.ss);
    load_window(shared.d, x);
    if constexpr (kTask == StripTask::kAnything) outputs_.add_errors(x + kHalo, row, begin_);
    d_.add_row(x, d_has_pivot_, sums.d, sums.dd);
    const int y = row - kHalo;
    if (y >= first_output_ && y < end_output_) outputs_.add_row(sums, s_.pivot(), d_.pivot(), y);
  }

  __device__ SumDifference sum_difference(float a, float b) const {
    // Without a branch, which costs more than it saves: bounds are infinite where nothing is
    // clamped.
    if constexpr (kTask == StripTask::kAnything || kTask == StripTask::kClampedScale) {
      a = at_most(at_least(a, job_.clamp.low), job_.clamp.high);
      b = at_most(at_least(b, job_.clamp.low), job_.clamp.high);
    }
    return {__fmul_rn(a + b, constants_.scale), __fmul_rn(a - b, constants_.scale)};
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

  __device__ static void load_window(const float* row, float (&x)[kWindowColumns]) {
    const float* own = row + kMargin + kColumns * (threadIdx.x % 32);
    x[0] = own[-5];
    load_shared(own - 4, x + 1);
    load_shared(own, x + 5);
    load_shared(own + 4, x + 9);
    x[13] = own[8];
  }

  __device__ static void load_shared(const float* from, float* x) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  }

  // The level of two rows is the mean of the lane's pixels in them, and of nothing else, so that it
  // does not matter where the warp began. Young sums follow the pair that is about to enter, old
  // ones the pair two before.
  __device__ void move_pivots(const SumDifference& pair_sum) {
    // Sums over a window of these: 0.03 and 1024 times the data range, about.
    constexpr float kSmall = 0.03f / kTapSum;
    constexpr float kLimit = 1024.0f / kTapSum;
    SumDifference level{pair_sum.s * (0.5f / kColumns), pair_sum.d * (0.5f / kColumns)};
    const bool usual = fabsf(level.s) < kLimit && fabsf(level.d) < kLimit;
    if (!__all_sync(0xffffffffu, usual)) level = level_of_usual_pixels(kLimit);
    // Where the images resemble each other, d is close to zero and needs no pivot.
    if (fabsf(level.d) <= kSmall) level.d = 0.0f;

    s_.move_pivots(level.s, levels_[0].s);
    if (__any_sync(0xffffffffu, d_.would_move(level.d, levels_[0].d))) {
      d_.move_pivots(level.d, levels_[0].d);
      d_has_pivot_ = __any_sync(0xffffffffu, level.d != 0.0f || levels_[0].d != 0.0f);
    }
    levels_[0] = levels_[1];
    levels_[1] = level;
  }

  // Without infinities, NaNs and extreme outliers: windows that do not hold them would suffer.
  // Where all pixels lie far outside the data range, none of them is an outlier.
  __device__ SumDifference level_of_usual_pixels(float limit) const {
    const int own = kMargin + kColumns * (threadIdx.x % 32);
    float least = INFINITY;
    for (int i = 0; i < 2 * kColumns; ++i)
      least = fminf(least, fabsf(shared_[i / kColumns].s[own + i % kColumns]));
    limit = fmaxf(limit, 16.0f * least);
    SumDifference sum{0.0f, 0.0f};
    int count = 0;
    for (int i = 0; i < 2 * kColumns; ++i) {
      const float s = shared_[i / kColumns].s[own + i % kColumns];
      const float d = shared_[i / kColumns].d[own + i % kColumns];
      if (!(fabsf(s) < limit && fabsf(d) < limit)) continue;
      sum.s += s;
      sum.d += d;
      ++count;
    }
    const float share = 1.0f / static_cast<float>(max(count, 1));
    return {sum.s * share, sum.d * share};
  }

  const Job<float>& job_;
  const StripUnits& units_;
  SharedRow (&shared_)[2];
  const Constants<float>& constants_;
  WindowSums s_;
  WindowSums d_;
  bool d_has_pivot_;         // the same in the whole warp
  SumDifference levels_[2];  // of the two pairs of rows before
  StripOutputs<kTask> outputs_;
  StripPool<Rows::kAligned> pool_;
  int begin_;  // rows whose outputs belong to the units
  int end_;
  int first_output_;  // and those of them that count
  int end_output_;
  int halo_slot_;
  bool inside_;
};

template <class Rows, StripTask kTask>
__global__ void __launch_bounds__(kStripThreads, kStripBlocksPerMultiprocessor)
    strip_kernel(const __grid_constant__ Job<float> job, const __grid_constant__ StripUnits units) {
  __shared__ SharedRow shared[kStripWarps][2];
  __shared__ float4 pool_slots[kIsScale<kTask> ? kStripThreads : 1];
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kStripWarps;
  const std::int64_t warp = blockIdx.x * kStripWarps + threadIdx.x / 32;
  const std::int64_t total = job.results.images * job.results.units_per_image;
  std::int64_t unit = total * warp / warps;
  const std::int64_t end = total * (warp + 1) / warps;
  __shared__ Constants<float> constants;
  if (threadIdx.x == 0)
    constants = job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants;
  __syncthreads();
  StripWalk<Rows, kTask> walk(job, units, shared[threadIdx.x / 32], pool_slots, constants);
  while (unit < end) {
    const std::int64_t left_in_strip = units.blocks - unit % units.blocks;
    const int count = static_cast<int>(min(left_in_strip, end - unit));
    walk.run(unit, count);
    unit += count;
  }
}

template <StripTask kTask, class Rows>
void start_strips(const Job<float>& job, const StripUnits& units, cudaStream_t stream) {
  const std::int64_t total = job.results.images * job.results.units_per_image;
  const std::int64_t blocks =
      std::min<std::int64_t>((total + kStripWarps - 1) / kStripWarps,
                             kStripBlocksPerMultiprocessor * current_device_info().multiprocessors);
  strip_kernel<Rows, kTask>
      <<<static_cast<unsigned>(blocks), kStripThreads, 0, stream>>>(job, units);
}

template <StripTask kTask>
cudaError_t launch_strips_as(const Job<float>& job, cudaStream_t stream) {
  const StripUnits units = strip_units(job.geometry);
  const auto start = [&]<class T>(TypeTag<T>) {
    if (VectorRows<T>::apply(job.preds, job.target, job.geometry))
      start_strips<kTask, VectorRows<T>>(job, units, stream);
    else
      start_strips<kTask, StridedRows<T>>(job, units, stream);
  };
  switch (job.preds.dtype) {
    case DType::kFloat16:
      start(TypeTag<Half>{});
      break;
    case DType::kBFloat16:
      start(TypeTag<BFloat16>{});
      break;
    case DType::kUInt8:
      start(TypeTag<std::uint8_t>{});
      break;
    default:
      start(TypeTag<float>{});
  }
  return cudaGetLastError();
}

}  // namespace syncfree::ssim
