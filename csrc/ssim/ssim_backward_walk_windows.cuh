// One warp walks down 128 columns of windows: rows of pixels come in, what the windows pass back
// goes into the ring. Window sums and their pivots are those of the forward pass (StripWalk).
#pragma once

#include "ssim/ssim_backward_walk_ring.cuh"
#include "ssim/ssim_backward_walk_sums.cuh"
#include "ssim/ssim_backward_walk_terms.cuh"
#include "ssim/ssim_strip_rows.cuh"
#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

template <class Access>
class WindowWalk {
 public:
  __device__ WindowWalk(const BackwardJob<float>& job, const Constants<float>& constants,
                        WalkMemory& memory, PairOfRows* ring, Gates& gates, int slots, int warp)
      : job_(job),
        constants_(constants),
        memory_(memory),
        ring_(ring),
        gates_(gates),
        slots_(slots),
        warp_(warp),
        terms_(job, constants) {}

  __device__ void run(const Piece& piece) {
    const int begin = piece.base + warp_ * kStripColumns;
    const int pairs = piece.pairs();
    if (begin >= piece.windows_end(width())) {
      for (int pair = 0; pair < pairs; ++pair) {
        wait();
        if (threadIdx.x % 32 == 0) ring_[place_.slot].has_pivots[warp_] = 0;
        hand_on();
      }
      return;
    }
    const LaneColumns columns(begin, width(), kHalo);
    const int lane = threadIdx.x % 32;
    at_ = kMargin + warp_ * kStripColumns + kColumns * lane;
    own_ = memory_.rows + kMargin + kColumns * lane;
    has_halo_ = lane < 2 * kHalo;
    halo_from_own_ = columns.halo_slot - kColumns * lane;
    inside_ = columns.inside;
    level_ = level_of_strip<Access>(job_, piece, constants_.scale);

    const std::int64_t image = piece.plane / job_.channels;
    const std::int64_t channel = piece.plane - image * job_.channels;
    terms_.start(piece.plane, begin, columns.first);

    int row = piece.top - 2 * kHalo;
    const Geometry geometry{job_.channels, {1, height(), width()}, {}, {}};
    Rows rows(job_.preds, job_.target, geometry, image, channel, columns, row - 2);
    RowData<Element> before[2], ahead[2];
    rows.next(before[0]);
    rows.next(before[1]);
    rows.next(ahead[0]);
    rows.next(ahead[1]);
    begin_history(before);
    s_.clear();
    d_.clear();
    wait();
    // The first rows complete no window. What they leave is written over.
    for (int pair = -kHalo;;) {
      // A loop of its own: sums then stay in the registers in which they are.
      OwnColumns x[2];
      while (enter_pair(rows, ahead, x)) {
        take_pair(row, x[0], NoPivots{}, NoPivots{});
        if (pair >= 0) hand_on();
        if (++pair == pairs) return;
        row += kPairRows;
        if (pair > 0) wait();
      }
      take_pair_about_pivots(row, x[0]);
      if (pair >= 0) hand_on();
      if (++pair == pairs) return;
      row += kPairRows;
      if (pair > 0) wait();
    }
  }

 private:
  using Rows = typename Access::Rows;
  using Element = typename Rows::Element;
  using Sums = WindowSums<GaussianWindow>;
  using Rules = LevelRules<GaussianWindow>;
  static constexpr int kHalo = kReach;
  static constexpr int kWindowColumns = Sums::kWindowColumns;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  struct OwnColumns {
    float s[kColumns];
    float d[kColumns];
  };

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }
  __device__ LaneHistory& history() { return memory_.history[threadIdx.x % 32]; }

  __device__ void wait() { gates_.empty[place_.slot].wait(place_.round); }
  __device__ void hand_on() {
    gates_.full[place_.slot].pass();
    place_.advance(slots_);
  }

  __device__ void begin_history(const RowData<Element> (&before)[2]) {
    OwnColumns x[2];
    convert(before[0], x[0]);
    convert(before[1], x[1]);
    about_zero_ = true;
    history() = {PixelSums::of(x[0].s, x[0].d) + PixelSums::of(x[1].s, x[1].d), {}, 0, 0};
  }

  // Two rows come into shared memory. True if zero is good enough a pivot for them and for all
  // that is under way.
  __device__ bool enter_pair(Rows& rows, RowData<Element> (&ahead)[2], OwnColumns (&x)[2]) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kPairRows; ++r) {
      const SumDifference halo = convert(ahead[r], x[r]);
      rows.next(ahead[r]);  // before the barrier, which keeps the compiler from asking later
      store_row(own_ + r * 2 * kRowFloats, x[r], halo);
    }
    __syncwarp();
    const PixelSums pair = PixelSums::of(x[0].s, x[0].d) + PixelSums::of(x[1].s, x[1].d);
    const PixelSums two_pairs = history().last_pair + pair;
    history().last_pair = pair;
    s_needs_none_ = Rules::s_needs_none(two_pairs, constants_.twice_c2);
    d_needs_none_ = Rules::d_needs_none(two_pairs, constants_.twice_c2);
    if (!__all_sync(kWarp, s_needs_none_ && d_needs_none_ && about_zero_)) return false;
    if (((slots_with_pivots_ >> place_.slot) & 1) != 0) publish_pivots(0.0f, 0.0f);
    slots_with_pivots_ &= ~(1u << place_.slot);
    if (threadIdx.x % 32 == 0) ring_[place_.slot].has_pivots[warp_] = 0;
    return true;
  }

  template <class AboutS, class AboutD>
  __device__ void take_pair(int row, OwnColumns& x, const AboutS& about_s, const AboutD& about_d) {
    // Unrolled, both kinds of warps have twice the code, and spills in their loops.
#pragma unroll 1
    for (int r = 0; r < kPairRows; ++r) {
      take_row(r, row, x, about_s, about_d);
      if (r > 0) break;
      // Kept in registers over the first row, they would push others out.
      load_shared(own_ + 2 * kRowFloats, x.s);
      load_shared(own_ + 3 * kRowFloats, x.d);
    }
  }

  __device__ void take_pair_about_pivots(int row, OwnColumns& x) {
    // One lane's need is that of all: windows beside an edge need a pivot where the edge has none.
    const bool s_is_plain = __all_sync(kWarp, s_needs_none_);
    const bool d_is_plain = __all_sync(kWarp, d_needs_none_);
    LaneHistory& lane = history();
    SumDifference level = Rules::level_of_pair(lane.last_pair, own_);
    if (s_is_plain) level.s = 0.0f;
    if (d_is_plain) level.d = 0.0f;
    constexpr int kPairs = LaneHistory::kPairs + 1;
    lane.about_pivots = s_is_plain && d_is_plain ? lane.about_pivots - 1 : kPairs;
    about_zero_ = lane.about_pivots <= 1;
    const SumDifference last = lane.level[0], second_last = lane.level[1],
                        third_last = lane.level[2];
    lane.level[0] = level;
    lane.level[1] = last;
    lane.level[2] = second_last;
    const Pivots about_s{level.s, second_last.s}, about_d{level.d, second_last.d};
    s_.move_pivots({last.s, third_last.s}, about_s);
    d_.move_pivots({last.d, third_last.d}, about_d);
    publish_pivots(__fmul_rn(about_s.old, kTapSum), __fmul_rn(about_d.old, kTapSum));
    slots_with_pivots_ |= 1u << place_.slot;
    if (threadIdx.x % 32 == 0) ring_[place_.slot].has_pivots[warp_] = 1;
    take_pair(row, x, about_s, about_d);
  }

  // A row enters, and the windows are complete whose middle is the row kHalo before it.
  template <class AboutS, class AboutD>
  __device__ void take_row(int r, int first_row, const OwnColumns& own_columns,
                           const AboutS& about_s, const AboutD& about_d) {
    const float* const own = own_ + r * 2 * kRowFloats;
    float x[kWindowColumns];
    StripMoments sums;
    load_window(own + kRowFloats, own_columns.d, x);
    d_.add_row(x, about_d, sums.d, sums.dd);
    load_window(own, own_columns.s, x);
    s_.add_row(x, about_s, sums.s, sums.ss);
    const float zero_s = __fmul_rn(level_, kTapSum);
    const int y = first_row + r - kHalo;
    RowOfTerms& row = ring_[place_.slot].row[r];
    if constexpr (std::is_same_v<AboutS, Pivots>)
      terms_.put(sums, y, row, at_, fmaf(about_s.old, kTapSum, zero_s),
                 __fmul_rn(about_d.old, kTapSum));
    else
      terms_.put(sums, y, row, at_, zero_s);
  }

  __device__ void publish_pivots(float s, float d) const {
    store_shared(ring_[place_.slot].pivot_s + at_, {s, s, s, s});
    store_shared(ring_[place_.slot].pivot_d + at_, {d, d, d, d});
  }

  __device__ SumDifference sum_difference(float a, float b) const {
    return {fmaf(a + b, constants_.scale, -level_), __fmul_rn(a - b, constants_.scale)};
  }

  // Own columns to `s` and `d`; the halo of both images is in different lanes until here.
  __device__ SumDifference convert(const RowData<Element>& data, OwnColumns& own) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const SumDifference x = sum_difference(to<float>(data.a[c]), to<float>(data.b[c]));
      own.s[c] = x.s;
      own.d[c] = x.d;
    }
    const float halo = to<float>(data.halo);
    return sum_difference(halo, __shfl_down_sync(kWarp, halo, 16));
  }

  __device__ void store_row(float* own, const OwnColumns& x, const SumDifference& halo) const {
    if (inside_) {
      store_shared(own, x.s);
      store_shared(own + kRowFloats, x.d);
    }
    if (has_halo_) {
      own[halo_from_own_] = halo.s;
      own[halo_from_own_ + kRowFloats] = halo.d;
    }
  }

  // The lane's own columns it has already.
  __device__ static void load_window(const float* own, const float (&own_columns)[kColumns],
                                     float (&x)[kWindowColumns]) {
    x[0] = own[-kHalo];
    load_shared(own - kColumns, x + 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[kHalo + c] = own_columns[c];
    load_shared(own + kColumns, x + kHalo + kColumns);
    x[kWindowColumns - 1] = own[2 * kColumns];
  }

  const BackwardJob<float>& job_;
  const Constants<float> constants_;
  WalkMemory& memory_;
  PairOfRows* const ring_;
  Gates& gates_;
  const int slots_;
  const int warp_;
  RingPlace place_;
  unsigned slots_with_pivots_ = ~0u;  // or with rubbish in their place
  Sums s_;
  Sums d_;
  bool s_needs_none_;
  bool d_needs_none_;
  bool about_zero_;  // nothing under way is about pivots other than zero; the same in a warp
  float level_;
  WindowTerms terms_;
  float* own_;
  int at_;  // where a row of terms holds the lane's first column
  int halo_from_own_;
  bool has_halo_;
  bool inside_;
};

}  // namespace syncfree::ssim
