// One warp walks down 64 columns of windows, from rows of pixels to the windows' terms, which it
// writes to the ring. Window sums and their pivots are those of the forward pass (StripWalk).
#pragma once

#include "ssim/ssim_backward_walk_lanes.cuh"
#include "ssim/ssim_backward_walk_memory.cuh"
#include "ssim/ssim_strip_pixels.cuh"
#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

// `kValues`: the deficits of all windows are summed too.
template <class Access, bool kValues>
class WindowWalk {
 public:
  __device__ WindowWalk(const BackwardJob<float>& job, const Constants<float>& constants,
                        WindowMemory<typename Access::Element, kValues>& memory, int warp)
      : job_(job),
        memory_(memory),
        warp_(warp),
        terms_(job, constants, memory.formula, memory.weights[threadIdx.x % 32]) {
    memory.pixels.scale = constants.scale;
  }

  __device__ void start(const Piece& piece) {
    const int begin = piece.base + warp_ * kWarpColumns;
    const LaneColumnsOf<kWalkColumns> columns(begin, width(), kHalo);
    const int lane = threadIdx.x % 32;
    // A lane beyond the image writes the same as the last one inside.
    own_ = memory_.rows + kMargin + columns.first_read - begin;
    const int behind = kWarpColumns + kHalo + lane - 2 * kHalo;
    halo_ = memory_.rows + kMargin + (lane < 2 * kHalo ? columns.halo_slot : behind);
    __syncwarp();
    memory_.pixels.level = level_of_strip<Access>(job_, piece, memory_.pixels.scale);
    terms_.start(piece.plane, columns.first, __fmul_rn(memory_.pixels.level, kTapSum));
    column_ = columns.first_read;
    halo_column_ = columns.halo_column;
    place_mirror(begin, columns.first, piece.base);
    Input::place(job_, memory_.planes, piece.plane);

    row_ = piece.top - 2 * kHalo - kPairRows;
    input().load(row_, ahead_);
    enter_pair();
    about_zero_ = true;
    history() = {sums_of_pair(), {}, 0, 0};
    s_.clear();
    d_.clear();
    slots_with_pivots_ = ~0u;
    if constexpr (kValues) {
      const bool counts = columns.first >= piece.left && columns.first < piece.right;
      totals().top = piece.top;
      totals().end = counts ? piece.end : 0;
      deficit_ = 0.0f;
    }
  }

  // Stores the two loaded rows to shared memory, and loads the next two.
  __device__ void enter_pair() {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kPairRows; ++r) {
      OwnColumns<kWalkColumns> x;
      const SumDifference halo = convert(ahead_[r], x);
      float* const own = own_ + r * 2 * kWarpPitch;
      store_shared(own, x.s);
      store_shared(own + kWarpPitch, x.d);
      halo_[r * 2 * kWarpPitch] = halo.s;
      halo_[r * 2 * kWarpPitch + kWarpPitch] = halo.d;
    }
    row_ += kPairRows;
    // Before the barrier, which keeps the compiler from loading later.
    input().load(row_, ahead_);
    __syncwarp();
  }

  // Whether the two rows in shared memory are plain: zero is good enough a pivot for them, all
  // partial sums are about zero, and no window that they complete is near the upper or lower edge.
  __device__ bool judge_pair() {
    const PixelSums pair = sums_of_pair();
    const PixelSums two_pairs = history().last_pair + pair;
    history().last_pair = pair;
    const float twice_c2 = memory_.formula.twice_c2;
    s_needs_none_ = Rules::s_needs_none(two_pairs, twice_c2);
    d_needs_none_ = Rules::d_needs_none(two_pairs, twice_c2);
    const int y = row_ - kPairRows - kHalo;
    const bool at_edge = y < kReach || y > height() - kReach - kPairRows;
    return __all_sync(kWarp, s_needs_none_ && d_needs_none_ && about_zero_ && !at_edge);
  }

  // Adds the two rows in shared memory, and writes the terms of the windows that they complete to a
  // slot of the ring. The first pairs of a piece complete none.
  __device__ void take_pair(PairOfRows& pair, unsigned slot) {
    if ((slots_with_pivots_ >> slot & 1) != 0) {
      publish_pivots(pair, {0.0f, 0.0f});
      tell_of_pivots(pair, false);
      slots_with_pivots_ ^= 1u << slot;
    }
    take_rows<false>(pair);
  }

  __device__ void tell_of_pivots(PairOfRows& pair, bool any) const {
    if (threadIdx.x % 32 == 0) pair.has_pivots[warp_] = any;
  }

  // Gives the same bits as `take_pair` where all pivots are zero.
  __device__ void take_pair_about_pivots(PairOfRows& pair, unsigned slot) {
    // If one lane needs a pivot, all take one: beside an edge in the picture windows need pivots,
    // though the lane whose pixels include the edge does not.
    const bool s_is_plain = __all_sync(kWarp, s_needs_none_);
    const bool d_is_plain = __all_sync(kWarp, d_needs_none_);
    LaneHistory& lane = history();
    SumDifference level = Rules::level_of_pair<kWarpPitch>(lane.last_pair, own_of_both());
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
    publish_pivots(pair, {__fmul_rn(about_s.old, kTapSum), __fmul_rn(about_d.old, kTapSum)});
    tell_of_pivots(pair, __any_sync(kWarp, about_s.old != 0.0f || about_d.old != 0.0f));
    slots_with_pivots_ |= 1u << slot;
    take_rows<true>(pair);
  }

 private:
  using Input = InputLane<Access>;
  using Element = typename Access::Element;
  using RawPair = RawRow<Element>[kPairRows];
  using Sums = WindowSums<GaussianWindow, kWalkColumns>;
  using Rules = LevelRules<GaussianWindow>;
  static constexpr int kHalo = kReach;
  static constexpr int kWindowColumns = Sums::kWindowColumns;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<GaussianWindow>);

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }
  // Where the columns begin of the lane and of the neighbor with which it shares its pivots.
  __device__ const float* own_of_both() const {
    return memory_.rows + (own_ - memory_.rows) / kColumns * kColumns;
  }
  __device__ LaneHistory& history() { return memory_.history[threadIdx.x % 32]; }
  __device__ LaneTotals& totals() { return memory_.totals[threadIdx.x % 32]; }

  // Over the pair of rows in shared memory. Two neighboring lanes share their sums, and so their
  // pivots: the few pixels of one lane often seem to need some.
  __device__ PixelSums sums_of_pair() const {
    const auto sums_of_row = [](const float* row) {
      float s[kColumns], d[kColumns];
      memcpy(s, __builtin_assume_aligned(row, 16), sizeof s);
      memcpy(d, __builtin_assume_aligned(row + kWarpPitch, 16), sizeof d);
      return PixelSums::of(s, d);
    };
    const float* const both = own_of_both();
    return sums_of_row(both) + sums_of_row(both + 2 * kWarpPitch);
  }

  __device__ Input input() const { return {job_, memory_.planes, column_, halo_column_}; }

  template <bool kPivots>
  __device__ void take_rows(PairOfRows& pair) {
#pragma unroll  // so that sums move on without copies
    for (int r = 0; r < kPairRows; ++r) take_row<kPivots>(pair, r);
    if (has_edge_) mirror(pair);
  }

  // Adds a row, which completes the windows whose middle is kHalo rows above it.
  template <bool kPivots>
  __device__ void take_row(PairOfRows& pair, int r) {
    const float* const own = own_ + r * 2 * kWarpPitch;
    RowOfTerms& row = pair.row[r];
    const int y = row_ - kPairRows + r - kHalo;
    float x[kWindowColumns];
    WindowMoments sums;
    TermsOfLane terms;
    if constexpr (kPivots) {
      const SumDifference young = history().level[0], old = history().level[2];
      load_window(own + kWarpPitch, x);
      d_.add_row(x, Pivots{young.d, old.d}, sums.d, sums.dd);
      load_window(own, x);
      s_.add_row(x, Pivots{young.s, old.s}, sums.s, sums.ss);
      terms = terms_.find(sums, y, __fmul_rn(old.s, kTapSum), __fmul_rn(old.d, kTapSum));
    } else {
      load_window(own + kWarpPitch, x);
      d_.add_row(x, NoPivots{}, sums.d, sums.dd);
      load_window(own, x);
      s_.add_row(x, NoPivots{}, sums.s, sums.ss);
      terms = terms_.find(sums);
    }
    if constexpr (kValues) {
      // A plain pair begins with an odd row of windows, and none is at the lower edge of the image.
      const bool ends_unit = kPivots ? y == height() || (y % kUnitRows == 0 && y < height())
                                     : r == 1 && y % kUnitRows == 0;
      if (ends_unit) keep_deficit(y);
      deficit_ += terms.deficit;
    }
    publish(row, terms);
  }

  // Adds up the deficit of the unit that ends above row `y`, if that lies in the piece: rows above
  // and below it are counted by others.
  __device__ void keep_deficit(int y) {
    LaneTotals& lane = totals();
    if (y > lane.top && y <= lane.end) add_in_any_order(lane.deficit, deficit_);
    deficit_ = 0.0f;
  }

  // Finds where the lane writes its terms, and where their mirror images go: windows beyond an edge
  // are mirror images of those inside, as their pixels are.
  __device__ void place_mirror(int begin, int column, int base) {
    has_edge_ = begin == 0 || begin + kWarpColumns + kReach + 1 >= width();
    const int last = width() - 1;
    const bool at_left = column <= kReach, at_right = column + 1 >= last - kReach && column < last;
    mirror_at_ = kMargin - base + (at_left ? 0 : 2 * last) - column;
    // No output of this strip needs what would lie beyond a row of terms: the next strip is narrow
    // then.
    mirrors_ = (at_left || at_right) && mirror_at_ < kTermPitch;
    const int beyond = column - width();
    const bool is_mirrored = beyond >= 0 && beyond <= kReach;
    at_ = is_mirrored ? kPlaceBeyond + beyond / 2 * 2 : kMargin + column - base;
    is_cut_ = column == last;
  }

  template <class T>
  __device__ void publish(T* values, const T (&x)[kWalkColumns]) const {
    if (Access::kAligned || !is_cut_)
      store_shared(values + at_, x);
    else
      values[at_] = x[0];
  }

  __device__ void publish(RowOfTerms& row, const TermsOfLane& terms) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) publish(row.plane[i], terms.plane[i]);
  }

  // Copies what the lane has published to its mirror images. The edge is its own mirror image.
  template <class T>
  __device__ void mirror(T* values) const {
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c) values[mirror_at_ - c] = values[at_ + c];
  }

  __device__ void mirror(PairOfRows& pair) const {
    if (!mirrors_) return;
#pragma unroll
    for (RowOfTerms& row : pair.row)
#pragma unroll
      for (auto& values : row.plane) mirror(values);
  }

  __device__ void publish_pivots(PairOfRows& pair, const SumDifference& pivot) const {
    publish(pair.pivot, {pivot, pivot});
    if (mirrors_) mirror(pair.pivot);
  }

  __device__ SumDifference sum_difference(float a, float b) const {
    const WalkPixelInputs inputs = memory_.pixels;
    return {fmaf(a + b, inputs.scale, -inputs.level), __fmul_rn(a - b, inputs.scale)};
  }

  __device__ SumDifference convert(const RawRow<Element>& data,
                                   OwnColumns<kWalkColumns>& own) const {
    return convert_row(data, [this](float a, float b) { return sum_difference(a, b); }, own);
  }

  const BackwardJob<float>& job_;
  WindowMemory<Element, kValues>& memory_;
  const int warp_;
  int at_;  // where a row of terms holds the lane's first column
  Sums s_;
  Sums d_;
  bool s_needs_none_;
  bool d_needs_none_;
  bool about_zero_;  // all partial sums are about a pivot of zero; uniform in a warp
  WindowTerms terms_;
  float* own_;
  float* halo_;
  unsigned slots_with_pivots_;  // a bit for each slot of the ring that may hold some
  bool has_edge_;               // the warp is at or near an edge of the image; uniform in a warp
  bool mirrors_;
  int mirror_at_;  // where the first column's mirror image goes; the second's goes left of it
  bool is_cut_;    // the second column lies beyond the image; never where pixels are aligned
  int row_;        // the first row of `ahead_`
  int column_;
  int halo_column_;
  float deficit_;  // of the current unit
  RawPair ahead_;
};

}  // namespace syncfree::ssim
