// The walk of a block of threads down a strip: blocks of eight rows come in, outputs leave.
#pragma once

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_pixels.cuh"
#include "ssim/ssim_tensor_pool.cuh"
#include "ssim/ssim_tensor_sums.cuh"

namespace syncfree::ssim {

inline constexpr int kTensorWarps = 4;  // each computes 32 of a strip's columns
inline constexpr int kTensorThreads = 32 * kTensorWarps;
static_assert(kStripColumns == kTensorWarps * 8 * kColumns);
static_assert(kBlockRows == 2 * kTensorWarps);  // each reads two rows

// Rows lie so far apart that the lanes of a quarter of a warp, in two rows, touch all banks.
inline constexpr int kTensorRowFloats = kRowFloats + 4;
static_assert(2 * kTensorRowFloats % 32 == 8);

struct BlockOfRows {
  alignas(16) float s[kBlockRows][kTensorRowFloats];
  alignas(16) float d[kBlockRows][kTensorRowFloats];
};

// What each warp found in the two rows that it put there: a bit for each lane's four columns.
struct PixelFlags {
  alignas(16) std::uint32_t s_needs_pivot[kTensorWarps];
  alignas(16) std::uint32_t d_needs_pivot[kTensorWarps];
};

struct TensorMemory {
  BlockOfRows rows[2];  // by turns
  PixelFlags flags[2];
  ColumnTaps taps;
  double sums[2][kQuantities][kTensorWarps];  // of units, by turns
};

template <class Rows, StripTask kTask>
class TensorWalk {
 public:
  __device__ TensorWalk(const Job<float>& job, const StripUnits& units, TensorMemory& memory,
                        const Constants<float>& constants)
      : job_(job),
        units_(units),
        memory_(memory),
        constants_(constants),
        outputs_(job, constants),
        pool_(job) {}

  // Units [first, first + count), one below the other in one strip. By all threads of the block.
  __device__ void run(std::int64_t first, int count) {
    const Geometry& g = job_.geometry;
    const std::int64_t strip = first / units_.blocks;
    const std::int64_t plane = strip / units_.strips;
    const int strip_begin = static_cast<int>(strip - plane * units_.strips) * kStripColumns;
    const int begin = static_cast<int>(first - strip * units_.blocks) * units_.rows_per_block;
    const int end = min(begin + count * units_.rows_per_block, height());
    const LaneColumns columns(strip_begin, static_cast<int>(g.size[2]), kHalo);
    first_output_ = begin;
    end_output_ = end;
    if (outputs_.leaves_border_out()) {
      first_output_ = max(begin, kHalo);
      end_output_ = min(end, height() - kHalo);
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = lane / 4;  // of the lanes that have the same columns
    own_row_ = kLaneRows * (lane % 4);
    // A lane beyond the image does as the last one inside: all lanes of a warp decide together.
    const int first_column = strip_begin + (8 * warp + group) * kColumns;
    const int last_inside = (static_cast<int>(g.size[2]) - 1) / kColumns * kColumns;
    own_column_ = kMargin + min(first_column, last_inside) - strip_begin;
    put_column_ = kMargin + kColumns * lane;
    halo_column_ = kMargin + columns.halo_slot;
    inside_ = columns.inside;
    has_halo_ = lane < 2 * kHalo;
    outputs_.start(plane, first_column);
    if constexpr (kPools) pool_.start(plane, columns.first, begin, end);

    const std::int64_t image = plane / g.channels;
    const auto rows_from = [&](int row) {
      return Rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns, row);
    };
    int row = begin - kBlockRows;
    Rows rows = rows_from(row + kLaneRows * warp);
    RowData<Element> sample, ahead[kLaneRows];
    rows_from(height() / 2).next(sample);
    ask_for(rows, ahead);
    level_ = level_of_strip(sample);
    put(ahead, row, 0);
    ask_for(rows, ahead);
    s_.clear();
    d_.clear();

    // The first two blocks complete nothing that counts, the last has rows below the units alone.
    int unit_end = begin + units_.rows_per_block;
    std::int64_t unit = first;
    for (int turn = 0; row < end + kBlockRows; row += kBlockRows, turn ^= 1) {
      __syncthreads();
      if (row + kBlockRows < end + kBlockRows) put(ahead, row + kBlockRows, turn ^ 1);
      take_block(turn, row, [&] { ask_for(rows, ahead); });
      if (row <= begin) {
        outputs_.forget();
      } else if (row >= min(unit_end, end)) {
        flush(unit++);
        unit_end += units_.rows_per_block;
      }
      if constexpr (kAddsErrors<kTask>)
        if (row >= begin && row < end) outputs_.add_errors(squared_, absolute_);
    }
    __syncthreads();
    write_flushed();
    if (threadIdx.x < 32) complete_units(job_.results, image, count);
  }

 private:
  using Element = typename Rows::Element;
  using Taps = NormalizedGaussian;
  // Judged by the four columns of two rows, half as many as in the walk of a warp.
  using Rules = LevelRules<Taps, 6, kLaneRows * kColumns>;
  static constexpr int kHalo = Taps::kHalo;
  static constexpr int kWindowColumns = kColumns + 2 * kHalo;
  static constexpr bool kPools = kIsScale<kTask>;

  __device__ static void ask_for(Rows& rows, RowData<Element> (&ahead)[kLaneRows]) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) rows.next(ahead[r]);
    rows.skip(kBlockRows - kLaneRows);
  }

  // Puts the warp's rows of the block that begins with `row` into shared memory.
  __device__ void put(const RowData<Element> (&ahead)[kLaneRows], int row, int turn) {
    const int warp = threadIdx.x / 32;
    BlockOfRows& block = memory_.rows[turn];
    PixelSums sums{};
    float4 neighbours[kLaneRows];
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      OwnColumns<kColumns> x;
      const SumDifference halo = convert(ahead[r], x);
      if constexpr (kPools) neighbours[r] = sums_of_neighbours(ahead[r]);
      float* const s = block.s[kLaneRows * warp + r];
      float* const d = block.d[kLaneRows * warp + r];
      if (inside_) {
        store_vector(s + put_column_, x.s);
        store_vector(d + put_column_, x.d);
      }
      if (has_halo_) {
        s[halo_column_] = halo.s;
        d[halo_column_] = halo.d;
      }
      const PixelSums of_row = PixelSums::of(x.s, x.d);
      sums = r == 0 ? of_row : sums + of_row;
    }
    flag(sums, memory_.flags[turn]);
    if constexpr (kPools) pool_.take_rows(neighbours[0], neighbours[1], row + kLaneRows * warp);
  }

  __device__ void flag(const PixelSums& sums, PixelFlags& flags) const {
    const std::uint32_t s_lanes =
        __ballot_sync(kWarp, !Rules::s_needs_none(sums, constants_.twice_c2));
    const std::uint32_t d_lanes =
        __ballot_sync(kWarp, !Rules::d_needs_none(sums, constants_.twice_c2));
    if (threadIdx.x % 32 != 0) return;
    flags.s_needs_pivot[threadIdx.x / 32] = s_lanes;
    flags.d_needs_pivot[threadIdx.x / 32] = d_lanes;
  }

  __device__ static std::uint32_t in_any_row(const std::uint32_t (&lanes)[kTensorWarps]) {
    const uint4 of_rows = *reinterpret_cast<const uint4*>(lanes);
    return of_rows.x | of_rows.y | of_rows.z | of_rows.w;
  }

  // The rows from `row` on enter, and the outputs of the block above them leave.
  template <class Ask>
  __device__ void take_block(int turn, int row, const Ask& ask) {
    const BlockOfRows& block = memory_.rows[turn];
    const PixelFlags& flags = memory_.flags[turn];
    const auto in_warp = [](std::uint32_t lanes) {
      return (lanes >> (threadIdx.x / 32 * 8) & 0xffu) != 0;
    };
    // One lane's need is that of all: windows beside an edge need a pivot where the edge has none.
    const bool moves_s = in_warp(in_any_row(flags.s_needs_pivot));
    const bool moves_d = in_warp(in_any_row(flags.d_needs_pivot));
    SumDifference pivot{0.0f, 0.0f};
    if (moves_s || moves_d) {
      pivot = level_of(block);
      if (!moves_s) pivot.s = 0.0f;
      if (!moves_d) pivot.d = 0.0f;
    }

    float d_pivot, s_pivot;
    WindowMoments d, s;
    RowMoments moments;
    filter(block.d, pivot.d, moves_d, moments);
    d_.take_block(moments, pivot.d, memory_.taps, d, d_pivot);
    filter(block.s, pivot.s, moves_s, moments);
    s_.take_block(moments, pivot.s, memory_.taps, s, s_pivot);
    ask();
    if constexpr (kAddsErrors<kTask>) sum_errors(block, row);

    const float zero_s = level_ + s_pivot;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      StripMoments sums;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int j = fragment_of(c), i = place_of(c, r);
        sums.s[c] = s.sum[j][i];
        sums.ss[c] = s.square[j][i];
        sums.d[c] = d.sum[j][i];
        sums.dd[c] = d.square[j][i];
      }
      const int y = row - kBlockRows + own_row_ + r;
      outputs_.add_row(sums, y, y >= first_output_ && y < end_output_, zero_s, d_pivot);
    }
  }

  // Near the values of the windows whose outputs the lane's columns of this block are.
  __device__ SumDifference level_of(const BlockOfRows& block) const {
    constexpr int kMiddle = kBlockRows / 2 - 1;
    OwnColumns<kColumns> x[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      load_vector(block.s[kMiddle + r] + own_column_, x[r].s);
      load_vector(block.d[kMiddle + r] + own_column_, x[r].d);
    }
    const PixelSums sums = PixelSums::of(x[0].s, x[0].d) + PixelSums::of(x[1].s, x[1].d);
    constexpr int kPlane = sizeof block.s / sizeof(float);
    return Rules::template level_of_pair<kPlane, kTensorRowFloats>(sums,
                                                                   block.s[kMiddle] + own_column_);
  }

  __device__ void filter(const float (&plane)[kBlockRows][kTensorRowFloats], float pivot,
                         bool moves, RowMoments& moments) const {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const float* const own = plane[own_row_ + r] + own_column_;
      float own_columns[kColumns], x[kWindowColumns];
      load_vector(own, own_columns);
      load_window<kHalo>(own, own_columns, x);
      if (moves)
#pragma unroll
        for (int i = 0; i < kWindowColumns; ++i) x[i] = __fsub_rn(x[i], pivot);
      WindowSums<Taps>::filter_with_squares(x, moments.sum[r], moments.square[r]);
    }
  }

  // Of this block: they are added once the outputs above it, of another unit perhaps, are through.
  __device__ void sum_errors(const BlockOfRows& block, int row) {
    squared_ = absolute_ = 0.0f;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int y = row + own_row_ + r;
      float d[kColumns];
      load_vector(block.d[own_row_ + r] + own_column_, d);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const bool counts = y >= 0 && y < height() && (Rows::kAligned || outputs_.has_column(c));
        const float x = counts ? d[c] : 0.0f;
        squared_ = fmaf(x, x, squared_);
        absolute_ += fabsf(x);
      }
    }
  }

  // Sums over the four warps: each leaves its own, and the first adds them behind a barrier.
  __device__ void flush(std::int64_t unit) {
    write_flushed();
    const int turn = static_cast<int>(unit % 2);
    outputs_.flush_to([&](int quantity, double sum) {
      if (threadIdx.x % 32 == 0) memory_.sums[turn][quantity][threadIdx.x / 32] = sum;
    });
    flushed_ = unit;
  }

  __device__ void write_flushed() {
    if (flushed_ < 0) return;
    if (threadIdx.x < kQuantities && job_.results.slots[threadIdx.x] != nullptr) {
      double sum = 0.0;
      for (double of_warp : memory_.sums[flushed_ % 2][threadIdx.x]) sum += of_warp;
      job_.results.slots[threadIdx.x][flushed_] = sum;
    }
    if (threadIdx.x < 32) __syncwarp();
    flushed_ = -1;
  }

  // What s is taken relative to, the same for a strip wherever a walk begins: its mean over a row.
  __device__ float level_of_strip(const RowData<Element>& row) {
    level_ = 0.0f;
    OwnColumns<kColumns> x;
    convert(row, x);
    return mean_of_usual<Rules>(PixelSums::of(x.s, x.d).sum.s * (1.0f / kColumns));
  }

  __device__ SumDifference convert(const RowData<Element>& data, OwnColumns<kColumns>& own) const {
    const auto sum_difference = [this](float a, float b) -> SumDifference {
      if constexpr (kClamps<kTask>) {
        a = at_most(at_least(a, job_.clamp.low), job_.clamp.high);
        b = at_most(at_least(b, job_.clamp.low), job_.clamp.high);
      }
      return {fmaf(a + b, constants_.scale, -level_), __fmul_rn(a - b, constants_.scale)};
    };
    return convert_row(data, sum_difference, own);
  }

  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }

  const Job<float>& job_;
  const StripUnits& units_;
  TensorMemory& memory_;
  const Constants<float> constants_;
  ColumnSums s_;
  ColumnSums d_;
  StripOutputs<kTask, Taps> outputs_;
  TensorPool<Rows::kAligned> pool_;
  float level_;
  float squared_ = 0.0f;
  float absolute_ = 0.0f;
  int first_output_;
  int end_output_;
  int own_row_;  // the first of the lane's two, in a block
  int own_column_;
  int put_column_;
  int halo_column_;
  bool inside_;
  bool has_halo_;
  std::int64_t flushed_ = -1;  // a unit whose sums wait for a barrier
};

}  // namespace syncfree::ssim
