// The walk of one warp down a strip: rows enter, outputs leave.
#pragma once

#include <type_traits>

#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_pixels.cuh"
#include "ssim/ssim_strip_pool.cuh"
#include "ssim/ssim_strip_uniform.cuh"
#include "ssim/ssim_strip_window.cuh"
#include "ssim/ssim_unit_sums.cuh"

namespace syncfree::ssim {

// Shared memory of one warp.
struct WalkMemory {
  alignas(16) float rows[4 * kRowFloats];  // of a pair, in each s before d
  LaneHistory history[32];
  UnitSums sums;
};

template <class Rows, StripTask kTask, class Taps>
class StripWalk {
 public:
  using Memory = WalkMemory;
  static constexpr bool kPools = kIsScale<kTask>;
  static constexpr bool kNeighboursTogether = Taps::kUniform || kPools;

  __device__ StripWalk(const Job<float>& job, const StripUnits& units, WalkMemory& memory,
                       float4* pool_slots, const Constants<float>& constants)
      : job_(job),
        units_(units),
        memory_(memory),
        constants_(constants),
        bound_of_s_(Rules::bound_for_mean(!fits_patches(job.geometry), constants.twice_c2)),
        outputs_(job, constants),
        pool_(job, pool_slots) {}

  // Units [first, first + count), one below the other in one strip.
  __device__ void run(std::int64_t first, int count) {
    const Geometry& g = job_.geometry;
    const std::int64_t strip = first / units_.of_strip;
    const std::int64_t plane = strip / units_.strips;
    const int strip_begin = static_cast<int>(strip - plane * units_.strips) * kStripColumns;
    const int begin = static_cast<int>(first - strip * units_.of_strip) * units_.rows;
    const LaneColumns columns(strip_begin, static_cast<int>(g.size[2]), kHalo);
    begin_ = begin;
    end_ = min(begin + count * units_.rows, height());
    int first_output = begin_, end_output = end_;
    if (outputs_.leaves_border_out()) {
      first_output = max(begin_, kHalo);
      end_output = min(end_, height() - kHalo);
    }
    first_counting_ = first_output + kHalo;
    counting_ = static_cast<unsigned>(max(end_output - first_output, 0));
    inside_ = columns.inside;
    const int lane = threadIdx.x % 32;
    float* const own = memory_.rows + kMargin + kColumns * lane;
    has_halo_ = lane < 2 * kHalo;
    halo_from_own_ = columns.halo_slot - kColumns * lane;
    outputs_.start(columns.first);
    if constexpr (kPools) pool_.start(plane, columns.first, begin_, end_);

    const std::int64_t image = plane / g.channels;
    const auto rows_from = [&](int row) {
      return Rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns, row);
    };
    Rows rows = rows_from(begin - kHalo - 2);
    const auto ask_for = [&rows](RawPair& pair) {
      rows.next(pair[0]);
      rows.next(pair[1]);
    };
    RowData<Element> samples[kSamples];
    RawPair before, ahead[kPairsAhead];
    for (int i = 0; i < kSamples; ++i)
      rows_from(height() / (kSamples + 1) * (i + 1)).next(samples[i]);
    ask_for(before);
    ask_for(ahead[0]);
    if constexpr (kPairsAhead == 2) ask_for(ahead[1]);
    level_ = level_of_strip(samples);
    begin_history(before);
    memory_.sums.clear();
    s_.clear();
    d_.clear();

    int row = begin - kHalo;
    for (int unit = -1; unit < count; ++unit) {  // -1: the first rows complete nothing
      const int end = min(begin + (unit + 1) * units_.rows, height()) + kHalo;
      // By turns: moving pairs between registers would wait for loads in flight.
      if constexpr (kPairsAhead == 2)
        for (; row + 2 < end; row += 4) {
          take_pair(rows, ahead[0], own, row);
          take_pair(rows, ahead[1], own, row + 2);
        }
      for (; row < end; row += 2) {
        take_pair(rows, ahead[0], own, row);
        if constexpr (kPairsAhead == 2) swap(ahead[0], ahead[1]);
      }
      if (unit < 0)
        outputs_.forget(begin_ == 0);
      else
        outputs_.flush(first + unit, memory_.sums);
    }
    memory_.sums.template complete<kTask>(job_.results, image, count);
  }

 private:
  using Element = typename Rows::Element;
  using RawPair = RowData<Element>[2];
  using Sums = std::conditional_t<Taps::kUniform, UniformSums, WindowSums<Taps>>;
  using Rules = LevelRules<Taps>;
  static constexpr int kHalo = Taps::kHalo;
  static constexpr int kWindowColumns = Sums::kWindowColumns;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<Taps>);
  static constexpr int kSamples = 3;  // rows of a strip from which its level is taken
  // Pairs of rows in flight from memory. Other tasks than SSIM alone, any strides, or the larger
  // window leave registers for one.
  static constexpr int kPairsAhead =
      Taps::kUniform && Rows::kAligned && kTask == StripTask::kValue ? 2 : 1;

  __device__ static void swap(RawPair& one, RawPair& other) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const RowData<Element> kept = one[r];
      one[r] = other[r];
      other[r] = kept;
    }
  }

  __device__ void begin_history(const RawPair& before) {
    OwnColumns<kColumns> x[2];
    convert(before[0], x[0]);
    convert(before[1], x[1]);
    about_zero_ = true;
    history() = {PixelSums::of(x[0].s, x[0].d) + PixelSums::of(x[1].s, x[1].d), {}, 0, 0};
  }

  // Puts a row into shared memory and issues the load of the row that comes next in its place:
  // before the barrier, past which the compiler does not move the load.
  __device__ void share_row(Rows& rows, RowData<Element>& data, float* own, OwnColumns<kColumns>& x,
                            float4& neighbours) {
    const SumDifference halo = convert(data, x);
    if constexpr (kPools) neighbours = sums_of_neighbours(data);
    rows.next(data);
    store_row(own, x, halo);
  }

  // The rows `row` and `row` + 1 enter.
  __device__ void take_pair(Rows& rows, RawPair& raw, float* own, int row) {
    OwnColumns<kColumns> x[2];
    float4 neighbours[2];
    __syncwarp();
    share_row(rows, raw[0], own, x[0], neighbours[0]);
    share_row(rows, raw[1], own + 2 * kRowFloats, x[1], neighbours[1]);
    __syncwarp();
    if constexpr (kPools) pool_.take_rows(neighbours[0], neighbours[1], row);
    const PixelSums of_row[2] = {PixelSums::of(x[0].s, x[0].d), PixelSums::of(x[1].s, x[1].d)};
    // The errors of a unit are those of the rows that enter while its outputs leave; the first unit
    // of a strip has those of the rows before, too (`forget`). So each row is counted once,
    // wherever a warp begins.
    if constexpr (kAddsErrors<kTask>)
      for (int r = 0; r < 2; ++r)
        outputs_.template add_errors<Rows::kAligned>(x[r].d, of_row[r].square.d, row + r);
    PixelSums pair = of_row[0] + of_row[1];
    pair.square.s = 0.0f;  // never used
    const PixelSums two_pairs = history().last_pair + pair;
    history().last_pair = pair;

    const auto take = [&](const auto& about_s, const auto& about_d) {
      take_row<0>(own, row, x[0], of_row[0], about_s, about_d);
      // Read again: kept in registers during the first row, they would displace others, which costs
      // 6 %.
      load_vector(own + 2 * kRowFloats, x[1].s);
      load_vector(own + 3 * kRowFloats, x[1].d);
      take_row<1>(own, row, x[1], of_row[1], about_s, about_d);
    };
    const bool s_needs_none = Rules::s_is_within(bound_of_s_, two_pairs);
    const bool d_needs_none = Rules::d_needs_none(two_pairs, constants_.twice_c2);
    if (__all_sync(kWarp, s_needs_none && d_needs_none && about_zero_)) {
      take(NoPivots{}, NoPivots{});
      return;
    }
    // If one lane needs pivots, all lanes take them: beside an edge windows need a pivot, though
    // the lane at the edge asks for none. Where d needs pivots, s takes them too.
    const bool is_plain = __all_sync(kWarp, s_needs_none && d_needs_none);
    const bool d_is_plain = __all_sync(kWarp, d_needs_none);
    SumDifference level = Rules::level_of_pair(pair, own);
    if (is_plain) level.s = 0.0f;
    if (d_is_plain) level.d = 0.0f;
    LaneHistory& lane = history();
    constexpr int kPairs = LaneHistory::kPairs + 1;
    lane.about_pivots = is_plain ? lane.about_pivots - 1 : kPairs;
    lane.d_about_pivots = d_is_plain ? max(lane.d_about_pivots - 1, 0) : kPairs;
    about_zero_ = lane.about_pivots <= 1;
    const SumDifference last = lane.level[0], second_last = lane.level[1],
                        third_last = lane.level[2];
    lane.level[0] = level;
    lane.level[1] = last;
    lane.level[2] = second_last;
    const Pivots about_s{level.s, second_last.s};
    s_.move_pivots({last.s, third_last.s}, about_s);
    if (lane.d_about_pivots == 0) {
      take(about_s, NoPivots{});
    } else {
      const Pivots about_d{level.d, second_last.d};
      d_.move_pivots({last.d, third_last.d}, about_d);
      take(about_s, about_d);
    }
  }

  // Whether the row completes an output that counts.
  __device__ bool counts(int row, bool is_first_of_pair) const {
    if constexpr (kTask == StripTask::kValue || kTask == StripTask::kErrors)
      return is_first_of_pair || row < end_ + kHalo;
    else
      return static_cast<unsigned>(row - first_counting_) < counting_;
  }

  template <int kOffset, class About>
  __device__ static void add_row(Sums& sums, float (&x)[kWindowColumns],
                                 const typename Sums::Moments& own, const About& about,
                                 float (&sum)[kColumns], float (&square)[kColumns]) {
    if constexpr (Taps::kUniform)
      sums.template add_row<kOffset>(x, own, about, sum, square);
    else
      sums.add_row(x, about, sum, square);
  }

  // Adds a row and computes the outputs of the row kHalo above it. AboutS and AboutD are Pivots, or
  // NoPivots, which saves their cost.
  template <int kOffset, class AboutS, class AboutD>
  __device__ void take_row(const float* pair, int first_row,
                           const OwnColumns<kColumns>& own_columns, const PixelSums& of_own,
                           const AboutS& about_s, const AboutD& about_d) {
    const float* const own = pair + kOffset * 2 * kRowFloats;
    const int row = first_row + kOffset;
    float x[kWindowColumns];
    StripMoments sums;
    load_window<kHalo>(own + kRowFloats, own_columns.d, x);
    add_row<kOffset>(d_, x, {of_own.sum.d, of_own.square.d}, about_d, sums.d, sums.dd);
    load_window<kHalo>(own, own_columns.s, x);
    add_row<kOffset>(s_, x, {of_own.sum.s, of_own.square.s}, about_s, sums.s, sums.ss);
    float zero_s = __fmul_rn(level_, kTapSum);
    if constexpr (std::is_same_v<AboutS, Pivots>) zero_s = fmaf(about_s.old, kTapSum, zero_s);
    const int y = row - kHalo;
    const bool counted = counts(row, kOffset == 0);
    if constexpr (std::is_same_v<AboutD, Pivots>)
      outputs_.add_row(sums, y, counted, zero_s, __fmul_rn(about_d.old, kTapSum));
    else
      outputs_.add_row(sums, y, counted, zero_s);
  }

  // The level of the strip, which is subtracted from s: the mean of a few of its rows, the same
  // wherever a warp begins.
  __device__ float level_of_strip(const RowData<Element> (&rows)[kSamples]) {
    level_ = 0.0f;
    float sum = 0.0f;
    for (const RowData<Element>& row : rows) {
      OwnColumns<kColumns> x;
      convert(row, x);
      sum += mean_of_usual<Rules>(PixelSums::over(x.s) * (1.0f / kColumns));
    }
    return sum * (1.0f / kSamples);
  }

  __device__ SumDifference sum_difference(float a, float b) const {
    // Without a branch, which costs more than it saves: if nothing is clamped, the bounds are
    // infinite.
    if constexpr (kClamps<kTask>) {
      a = at_most(at_least(a, job_.clamp.low), job_.clamp.high);
      b = at_most(at_least(b, job_.clamp.low), job_.clamp.high);
    }
    return {fmaf(a + b, constants_.scale, -level_), __fmul_rn(a - b, constants_.scale)};
  }

  __device__ SumDifference convert(const RowData<Element>& data, OwnColumns<kColumns>& own) const {
    return convert_row(data, [this](float a, float b) { return sum_difference(a, b); }, own);
  }

  __device__ void store_row(float* own, const OwnColumns<kColumns>& x,
                            const SumDifference& halo) const {
    if (inside_) {
      store_vector(own, x.s);
      store_vector(own + kRowFloats, x.d);
    }
    if (has_halo_) {
      own[halo_from_own_] = halo.s;
      own[halo_from_own_ + kRowFloats] = halo.d;
    }
  }

  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }
  __device__ LaneHistory& history() { return memory_.history[threadIdx.x % 32]; }

  const Job<float>& job_;
  const StripUnits& units_;
  WalkMemory& memory_;
  const Constants<float> constants_;
  const float bound_of_s_;
  Sums s_;
  Sums d_;
  bool about_zero_;  // all partial sums are about zero; the same in a warp
  float level_;
  StripOutputs<kTask, Taps> outputs_;
  StripPool<Rows::kAligned> pool_;
  int begin_;  // of the rows whose outputs belong to the walk's units
  int end_;
  int first_counting_;  // of the rows that complete an output that counts
  unsigned counting_;   // number of these
  int halo_from_own_;
  bool has_halo_;
  bool inside_;
};

}  // namespace syncfree::ssim
