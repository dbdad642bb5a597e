// The walk of one warp down a ring strip: rows enter, outputs leave.
#pragma once

#include <type_traits>

#include "ssim/ssim_ring_sums.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_pixels.cuh"
#include "ssim/ssim_strip_pool.cuh"
#include "ssim/ssim_unit_sums.cuh"

namespace syncfree::ssim {

// Shared memory of one warp.
struct RingMemory {
  struct History {
    SumDifference level[RingLines::kPairs];  // of the previous pairs, the latest first
    // How many pairs, including the current one, are to be taken about pivots other than zero: of s
    // or d, and of d alone. The same in the whole warp.
    int about_pivots;
    int d_about_pivots;
  };

  RingLines lines;
  alignas(16) float rows[4 * kRowFloats];  // of a pair, in each s before d
  History history[32];
  RowPrefetch prefetch[32];
  UnitSums sums;
};

// A pair of rows enters shared memory while the one before is added up, so that nothing waits for
// shared memory, nor for the vote on whether the pair needs pivots.
template <class Rows, StripTask kTask>
class RingWalk {
 public:
  using Memory = RingMemory;
  static constexpr bool kPools = kIsScale<kTask>;
  static constexpr bool kNeighboursTogether = true;

  __device__ RingWalk(const Job<float>& job, const StripUnits& units, RingMemory& memory,
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
    own_ = SharedPlace(own_row());
    halo_ = SharedPlace(memory_.rows + kMargin + columns.halo_slot);
    has_halo_ = lane < 2 * kHalo;
    if constexpr (kPrefetches)
      memory_.prefetch[lane] =
          RowPrefetch(job_, plane / g.channels, plane % g.channels, strip_begin, sizeof(Element));
    pair_[0] = SharedPlace(memory_.lines.row + kColumns * lane);
    pair_[1] = pair_[0] + RingLines::kPair;
    pair_[2] = pair_[1] + RingLines::kPair;
    outputs_.start(columns.first);
    if constexpr (kPools) pool_.start(plane, columns.first, begin_, end_);

    const std::int64_t image = plane / g.channels;
    const auto rows_from = [&](int row) {
      return Rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns, row);
    };
    int row = begin - kHalo;
    Rows rows = rows_from(row - 2);
    Row samples[kSamples];
    RawPair ahead;
    for (int i = 0; i < kSamples; ++i)
      rows_from(height() / (kSamples + 1) * (i + 1)).next(samples[i]);
    rows.next(ahead[0]);
    rows.next(ahead[1]);
    minus_level_ = -level_of_strip(samples);
    s_.clear();
    d_.clear();
    memory_.history[lane] = {};
    memory_.sums.clear();
    last_pair_ = {};
    enter(rows, ahead, row - 2);
    about_zero_ = true;
    judge();  // only for `last_pair_`
    enter(rows, ahead, row);
    load<0, kD>(pair_d_);
    judge();
    for (int unit = -1; unit < count; ++unit) {  // -1: the first rows complete nothing
      const int end = min(begin + (unit + 1) * units_.rows, height()) + kHalo;
      while (row < end) {
        if (is_plain_) {  // a loop of its own: the other pairs cost it no registers
          for (;;) {
            take_pair(rows, ahead, row, NoPivots{}, NoPivots{});
            row += 2;
            if (!is_plain_) break;
            if (row >= end) break;
          }
        } else {
          take_pair_about_pivots(rows, ahead, row);
          row += 2;
        }
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
  using Row = typename Rows::Row;
  using RawPair = Row[2];
  using Rules = LevelRules<RingWindow>;
  // While the images of the next scale are written, memory takes longer to answer than a pair of
  // rows takes to process. Narrower pixels arrive soon enough.
  static constexpr bool kPrefetches =
      kPools && Rows::kAligned && sizeof(typename Rows::Element) == sizeof(float);
  static constexpr int kHalo = RingWindow::kHalo;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<RingWindow>);
  static constexpr int kSamples = 3;  // rows of a strip from which its level is taken
  static constexpr int kS = 0, kD = 1;
  static constexpr RingOrders kOrders = kRingOrders<kTask>;

  // Puts the rows `row` and `row` + 1, which have come from memory, into shared memory, and issues
  // the loads of the next pair: before the barrier, past which the compiler does not move them.
  __device__ void enter(Rows& rows, RawPair& raw, int row) {
    float4 neighbours[2];
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const SumDifference halo = convert(raw[r], x_[r]);
      if constexpr (kPools) neighbours[r] = sums_of_neighbours(raw[r]);
      rows.next(raw[r]);
      const int place = 2 * r * kRowFloats;
      if (inside_) {
        (own_ + place).store_vector(x_[r].s);
        (own_ + (place + kRowFloats)).store_vector(x_[r].d);
      }
      if (has_halo_) {
        (halo_ + place).store(halo.s);
        (halo_ + (place + kRowFloats)).store(halo.d);
      }
    }
    __syncwarp();
    if constexpr (kPools) pool_.take_rows(neighbours[0], neighbours[1], row);
    if constexpr (kPrefetches)
      memory_.prefetch[threadIdx.x % 32].rows(row + 4, job_.preds.stride[3] * sizeof(Element),
                                              height());
  }

  // Decides whether the pair that has entered needs pivots.
  __device__ void judge() {
    sum_up();
    vote();
  }
  __device__ void sum_up() {
    const PixelSums of_row[2] = {PixelSums::of(x_[0].s, x_[0].d), PixelSums::of(x_[1].s, x_[1].d)};
    if constexpr (kAddsErrors<kTask>)
      for (int r = 0; r < 2; ++r) squared_[r] = of_row[r].square.d;
    PixelSums pair = of_row[0] + of_row[1];
    pair.square.s = 0.0f;  // never used
    const PixelSums two_pairs = last_pair_ + pair;
    last_pair_ = pair;
    s_needs_none_ = Rules::s_is_within(bound_of_s_, two_pairs);
    d_needs_none_ = Rules::d_needs_none(two_pairs, constants_.twice_c2);
  }
  __device__ void vote() {
    is_plain_ = __all_sync(kWarp, s_needs_none_ && d_needs_none_ && about_zero_);
  }

  template <int kRow, int kPlane>
  __device__ void load(RingInput& input) const {
    const SharedPlace row = own_ + (2 * kRow + kPlane) * kRowFloats;
    constexpr int kMoments = 2 * kPlane * RingLines::kMoment;
    const SharedPlace third = kRow == 0 ? pair_[1] + RingLines::kRow : pair_[2];
    const LinePlace lines{pair_[0] + (kRow * RingLines::kRow + kMoments), third + kMoments};
    if constexpr (kRow == 0) {
      input.load(row, kPlane == kS ? x_[0].s : x_[0].d, lines);
    } else {
      // Read again: kept in registers until here, two pairs would be there at once, since the next
      // pair enters before this one is finished.
      float own[kColumns];
      row.load_vector(own);
      input.load(row, own, lines);
    }
  }

  // Adds up the rows `row` and `row` + 1, computes the outputs of the rows kHalo above them, and
  // lets the next pair enter. AboutS and AboutD are RingPivots, or NoPivots, which saves their
  // cost.
  template <class AboutS, class AboutD>
  __device__ void take_pair(Rows& rows, RawPair& raw, int row, const AboutS& about_s,
                            const AboutD& about_d) {
    RingInput first_s, second_d, second_s;
    StripMoments first, second;
    const auto add_first = [&] { add_outputs(first, row, true, about_s, about_d); };
    // The errors of a unit are those of the rows that are taken while its outputs leave; the first
    // unit of a strip has those of the rows before, too (`forget`). So each row is counted once,
    // wherever a warp begins.
    if constexpr (kAddsErrors<kTask>)
      for (int r = 0; r < 2; ++r)
        outputs_.template add_errors<Rows::kAligned>(x_[r].d, squared_[r], row + r);
    d_.template add_row<kOrders.first_d, false>(pair_d_, about_d, first.d, first.dd,
                                                [&] { load<0, kS>(first_s); });
    s_.template add_row<kOrders.first_s, false>(first_s, about_s, first.s, first.ss,
                                                [&] { load<1, kD>(second_d); });
    if constexpr (kOrders.first_outputs == FirstOutputs::kWithItsSums) add_first();
    d_.template add_row<kOrders.second_d, true>(second_d, about_d, second.d, second.dd, [&] {
      load<1, kS>(second_s);
      if constexpr (kOrders.first_outputs == FirstOutputs::kWithTheSecondRow) add_first();
    });
    if constexpr (kOrders.first_outputs == FirstOutputs::kLast) add_first();
    const SharedPlace oldest = pair_[0];
    pair_[0] = pair_[1];
    pair_[1] = pair_[2];
    pair_[2] = oldest;
    enter(rows, raw, row + 2);
    s_.template add_row<kOrders.second_s, true>(second_s, about_s, second.s, second.ss,
                                                [&] { load<0, kD>(pair_d_); });
    sum_up();
    add_outputs(second, row + 1, row + 1 < end_ + kHalo, about_s, about_d);
    vote();
  }

  __device__ void take_pair_about_pivots(Rows& rows, RawPair& raw, int row) {
    // If one lane needs pivots, all lanes take them: beside an edge windows need a pivot, though
    // the lane at the edge asks for none. Where d needs pivots, s takes them too.
    const bool is_plain = __all_sync(kWarp, s_needs_none_ && d_needs_none_);
    const bool d_is_plain = __all_sync(kWarp, d_needs_none_);
    SumDifference level = Rules::level_of_pair(last_pair_, own_row());
    if (is_plain) level.s = 0.0f;
    if (d_is_plain) level.d = 0.0f;
    RingMemory::History& history = memory_.history[threadIdx.x % 32];
    constexpr int kPairs = RingLines::kPairs + 1;
    history.about_pivots = is_plain ? history.about_pivots - 1 : kPairs;
    history.d_about_pivots = d_is_plain ? max(history.d_about_pivots - 1, 0) : kPairs;
    about_zero_ = history.about_pivots <= 1;
    const SumDifference last = history.level[0], open = history.level[1], oldest = history.level[2];
    history.level[0] = level;
    history.level[1] = last;
    history.level[2] = open;
    const RingPivots about_s{level.s, last.s, open.s, oldest.s};
    s_.move_pivot(oldest.s, open.s);
    if (history.d_about_pivots == 0) {
      take_pair(rows, raw, row, about_s, NoPivots{});
    } else {
      const RingPivots about_d{level.d, last.d, open.d, oldest.d};
      d_.move_pivot(oldest.d, open.d);
      take_pair(rows, raw, row, about_s, about_d);
    }
  }

  template <class AboutS, class AboutD>
  __device__ void add_outputs(const StripMoments& sums, int row, bool is_in_share,
                              const AboutS& about_s, const AboutD& about_d) {
    float zero_s = __fmul_rn(-minus_level_, kTapSum);
    if constexpr (std::is_same_v<AboutS, RingPivots>) zero_s = fmaf(about_s.open, kTapSum, zero_s);
    const int y = row - kHalo;
    bool counts = is_in_share;
    if constexpr (kTask != StripTask::kValue && kTask != StripTask::kErrors)
      counts = static_cast<unsigned>(row - first_counting_) < counting_;
    if constexpr (std::is_same_v<AboutD, RingPivots>)
      outputs_.add_row(sums, y, counts, zero_s, __fmul_rn(about_d.open, kTapSum));
    else
      outputs_.add_row(sums, y, counts, zero_s);
  }

  // The level of the strip, which is subtracted from s: the mean of a few of its rows, the same
  // wherever a warp begins.
  __device__ float level_of_strip(const Row (&rows)[kSamples]) {
    minus_level_ = 0.0f;
    float sum = 0.0f;
    for (const Row& row : rows) {
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
    return {fmaf(a + b, constants_.scale, minus_level_), __fmul_rn(a - b, constants_.scale)};
  }

  // For floats that hold bytes in their last bits: one multiply-add takes off 2^23 and scales.
  // Everything but the last addition is exact, so the bits are those of `sum_difference`. A
  // conversion has a variable latency, and would occupy a scoreboard that pixels in flight need.
  __device__ SumDifference sum_difference_of_bytes(float a, float b) const {
    const float rest = -0x1p23f * constants_.scale;
    a = fmaf(a, constants_.scale, rest);
    b = fmaf(b, constants_.scale, rest);
    return {(a + b) + minus_level_, a - b};
  }

  __device__ SumDifference convert(const Row& data, OwnColumns<kColumns>& own) const {
    if constexpr (std::is_same_v<Element, std::uint8_t> && !kClamps<kTask> && !kPools) {
      const auto byte = [](unsigned x) { return detail::bit_cast<float>(0x4b000000u | x); };
      RowData<float, kColumns, 2> row{{}, {}, {byte(data.halo[0]), byte(data.halo[1])}};
      in_last_bits(data.a, row.a);
      in_last_bits(data.b, row.b);
      return convert_row(
          row, [this](float a, float b) { return sum_difference_of_bytes(a, b); }, own);
    } else {
      return convert_row(data, [this](float a, float b) { return sum_difference(a, b); }, own);
    }
  }

  __device__ float* own_row() const {
    return memory_.rows + kMargin + kColumns * (threadIdx.x % 32);
  }
  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }

  const Job<float>& job_;
  const StripUnits& units_;
  RingMemory& memory_;
  const Constants<float> constants_;
  const float bound_of_s_;
  RingSums s_;
  RingSums d_;
  OwnColumns<kColumns> x_[2];  // of the pair that has entered
  RingInput pair_d_;           // input of its first step
  float squared_[2];           // sums of d^2 over the lane's columns, for each of its rows
  PixelSums last_pair_;        // sums over the lane's pixels
  bool s_needs_none_;
  bool d_needs_none_;
  bool about_zero_;  // all partial sums are about zero; the same in a warp
  bool is_plain_;    // and the pair that has entered needs none; likewise
  float minus_level_;
  StripOutputs<kTask, RingWindow> outputs_;
  StripPool<Rows::kAligned> pool_;
  SharedPlace pair_[RingLines::kPairs];  // the lane's place in the ring, oldest pair first
  SharedPlace own_;
  SharedPlace halo_;
  int begin_;  // of the rows whose outputs belong to the walk's units
  int end_;
  int first_counting_;  // of the rows that complete an output that counts
  unsigned counting_;   // number of these
  bool has_halo_;
  bool inside_;
};

}  // namespace syncfree::ssim
