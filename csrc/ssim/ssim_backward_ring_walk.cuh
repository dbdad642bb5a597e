// The walk of one warp down 128 columns of windows, from rows of pixels to rows of gradients.
#pragma once

#include "ssim/ssim_backward_ring_outputs.cuh"
#include "ssim/ssim_backward_ring_pixels.cuh"
#include "ssim/ssim_backward_ring_terms.cuh"

namespace syncfree::ssim {

// A row of pixels completes a row of windows, whose terms go through shared memory to the sums
// around each pixel. Between two barriers a warp adds up a row of windows and the terms of the row
// of windows before it.
template <class Access, bool kErrors>
class GradientRing {
 public:
  using Element = typename Access::Element;
  using Memory = GradientMemory<Element>;

  __device__ GradientRing(const BackwardJob<float>& job, Memory& memory, const WalkResults& results,
                          const Constants<float>& constants)
      : job_(job), memory_(memory), pixels_(job, memory), outputs_(job, results, memory) {
    memory_.windows.twice_c1 = constants.twice_c1;
    memory_.windows.twice_c2 = constants.twice_c2;
    memory_.outputs.scale_of_sums = constants.scale * kTapSum;
    memory_.pixels.scale = constants.scale;
    memory_.deficit = 0.0;
    memory_.absolute_error = {0.0, 0.0};
  }

  __device__ void run(const GradientPiece& piece) {
    begin(piece);
    // The first rows complete no window that the piece needs, so only pixels are added up. The
    // terms and lines that belong to these rows are left over from an earlier piece, but reach no
    // output that counts: each sum has eleven rows, and the first output that counts begins with
    // the terms that are found when row_ is piece.top. The same holds for the deficit.
    while (is_plain_ && row_ < piece.top) take_row_of_pixels();
    // The last terms are added beside a row of windows that nobody needs, and another such row
    // completes its pair.
    const int end = piece.end + 2 * kReach + 1;
    while (row_ < end) {
      // Loops of their own, so that sums stay in the same registers.
      if (is_plain_) {
        do take_row();
        while (row_ % kPairRows != 0 || (is_plain_ && row_ < end));
      } else {
        Levels levels{};
        RingPivots about_s{}, about_d{};
        do take_row_about_pivots(levels, about_s, about_d);
        while (row_ % kPairRows != 0 || (!is_plain_ && row_ < end));
      }
    }
    outputs_.end();
  }

  // The sums over all pieces, in lane 0; zero in all others.
  __device__ LaneTotals totals() const {
    if (threadIdx.x != 0) return {};
    return {split(memory_.deficit), memory_.absolute_error, 0, 0};
  }

 private:
  using Row = typename GradientPixels<Access>::Row;
  using Rules = LevelRules<RingWindow>;
  static constexpr GradientOrders kOrders = kGradientOrders<kErrors>;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<RingWindow>);
  static constexpr int kS = 0, kD = 1;

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  __device__ void begin(const GradientPiece& piece) {
    __syncwarp();  // other lanes may still read the last piece's values
    memory_.piece = piece;
    pixels_.start(piece);
    outputs_.place(piece);
    terms_offset_ = kMargin + piece.base() - piece.left;
    const bool is_at_left = piece.left == 0, is_at_right = piece.right == width();
    has_edge_ = is_at_left || is_at_right;
    edge_ = kMargin + (is_at_left ? 0 : width() - 1 - piece.left);
    about_pivots_ = 0;
    __syncwarp();
    place_.settle(memory_);
    s_.clear();
    d_.clear();
    outputs_.start(piece, place_);
    // Pairs begin at even rows of the image, and windows lie kReach rows above the row that
    // completes them: where a piece begins changes no bit.
    row_ = piece.top - 2 * kReach;
    next_event_ = piece.top;
    last_pair_ = {};
    Row first[2 * kPairRows];
#pragma unroll
    for (int i = 0; i < 2 * kPairRows; ++i) pixels_.ask(row_ - kPairRows + i, first[i]);
    pixels_.find_level();
#pragma unroll
    for (int i = 0; i < 2 * kPairRows; ++i) {
      if (i == 2 * kPairRows - 1) enter();
      const PixelSums of_row = pixels_.take(first[i]);
      if (i % kPairRows != 0) judge(of_row);  // the pair before is judged for its sums alone
      of_first_ = of_row;
    }
    pixels_.ask(row_ + kPairRows, raw_);
    outputs_.fetch(row_ - 2 * kReach - 1);
    __syncwarp();
    deficit_ = 0.0f;
  }

  __device__ void enter() const {
    pixels_.enter(place_.row());
    mirror_edge();
  }

  // Decides whether the next pair is taken without pivots. Zero must be good enough for the pair of
  // rows that was converted last, and all partial sums and lines in use must be about zero. If one
  // lane needs a pivot, all take one: beside an edge in the picture windows need pivots, though the
  // lane whose pixels include the edge does not.
  __device__ void judge(const PixelSums& of_second) {
    const PixelSums pair = of_first_ + of_second;
    const PixelSums two_pairs = last_pair_ + pair;
    last_pair_ = pair;
    const float twice_c2 = memory_.windows.twice_c2;
    s_is_plain_ = __all_sync(kWarp, Rules::s_needs_none(two_pairs, twice_c2));
    d_is_plain_ = __all_sync(kWarp, Rules::d_needs_none(two_pairs, twice_c2));
    is_plain_ = s_is_plain_ && d_is_plain_ && about_pivots_ <= 1;
  }

  __device__ LinePlace lines() const {
    return {place_.line() + offsets_.now(), place_.line() + offsets_.third()};
  }

  // Takes a row that needs no pivots.
  __device__ void take_row() {
    const LinePlace lines = this->lines();
    StripMoments sums;
    add_row<false>(lines, NoPivots{}, NoPivots{}, sums);
    const WindowInputs k = memory_.windows;
    LaneTerms terms = terms_of(sums, k.twice_c1, k.twice_c2, k.zero_s, [](float x) { return x; });
    count(terms);
    outputs_.template take_row<false>(lines, row_ - 2 * kReach - 1);
    hand_on(terms);
  }

  // Takes one of the first rows of a piece, of which only the sums of pixels are needed.
  __device__ void take_row_of_pixels() {
    StripMoments sums;
    add_row<false>(lines(), NoPivots{}, NoPivots{}, sums);
    ++row_;
    offsets_.advance();
    __syncwarp();
    take_pixels();
    __syncwarp();
  }

  // Pivots that were chosen for pairs of rows, the latest first. Windows are relative to that of
  // the pair before the last.
  struct Levels {
    SumDifference last;
    SumDifference open;
    SumDifference oldest;
  };

  __device__ void take_row_about_pivots(Levels& levels, RingPivots& about_s, RingPivots& about_d) {
    const LinePlace lines = this->lines();
    if constexpr (kOrders.asks_early) outputs_.ask(lines);
    outputs_.template take_row<true>(lines, row_ - 2 * kReach - 1, levels.oldest);
    const bool is_first = row_ % kPairRows == 0;
    if (is_first) choose_pivots(levels, about_s, about_d);
    // The row three before the first one of a pair belongs to the pair before the last.
    const auto of_row = [is_first](const RingPivots& about) {
      return RingPivots{about.now, is_first ? about.open : about.last, about.open, about.oldest};
    };
    StripMoments sums;
    add_row<true>(lines, of_row(about_s), of_row(about_d), sums);
    const WindowInputs k = memory_.windows;
    const float zero_d = __fmul_rn(about_d.open, kTapSum);
    LaneTerms terms = terms_of(sums, k.twice_c1, k.twice_c2, fmaf(about_s.open, kTapSum, k.zero_s),
                               [zero_d](float mean) { return mean + zero_d; });
    count(terms);
    hand_on(terms);
  }

  __device__ void choose_pivots(Levels& levels, RingPivots& about_s, RingPivots& about_d) {
    const float* const first_row = memory_.rows + kMargin + kColumns * threadIdx.x;
    SumDifference level = Rules::level_of(last_pair_, [&](int i) {
      const int c = i % kColumns;
      const OwnColumns<kColumns>& second = pixels_.taken();
      return i < kColumns ? SumDifference{first_row[c], first_row[kRowFloats + c]}
                          : SumDifference{second.s[c], second.d[c]};
    });
    if (s_is_plain_) level.s = 0.0f;
    if (d_is_plain_) level.d = 0.0f;
    about_pivots_ = s_is_plain_ && d_is_plain_ ? max(about_pivots_ - 1, 0) : kPairsAboutPivots;
    about_s = {level.s, levels.last.s, levels.open.s, levels.oldest.s};
    about_d = {level.d, levels.last.d, levels.open.d, levels.oldest.d};
    const SumDifference before = outputs_.own_pivot(levels.oldest);
    levels = {level, levels.last, levels.open};
    const SumDifference now = outputs_.own_pivot(levels.oldest);
    outputs_.move_pivot(place_.line(), {__fmul_rn(now.s - before.s, kTapSum),
                                        __fmul_rn(now.d - before.d, kTapSum)});
    s_.move_pivot(about_s.oldest, about_s.open);
    d_.move_pivot(about_d.oldest, about_d.open);
  }

  // Adds the row in shared memory, which completes the windows whose middle is kReach rows above
  // it.
  template <bool kPivots, class About>
  __device__ void add_row(const LinePlace& lines, const About& about_s, const About& about_d,
                          StripMoments& sums) {
    load<kD>(lines);
    RingInput input = input_;
    d_.template add_row<kOrders.d, kPivots>(input, about_d, sums.d, sums.dd,
                                            [&] { load<kS>(lines); });
    input = input_;
    s_.template add_row<kOrders.s, kPivots>(input, about_s, sums.s, sums.ss, [&] {
      if constexpr (kOrders.asks_early && !kPivots) outputs_.ask(lines);
    });
  }

  // Accounts for edges of the image in the terms of a row of windows, and for the row in the value.
  __device__ void count(LaneTerms& terms) {
    if (has_edge_) double_edge(terms);
    // A single condition for everything that only few rows need.
    const int y = row_ - kReach;
    if (y == next_event_) take_event(y, terms);
    deficit_ += terms.deficit;
  }

  __device__ void take_event(int y, LaneTerms& terms) {
    const int last = height() - 1;
    if (y == 0 || y == last) {
#pragma unroll
      for (auto& plane : terms.of)
#pragma unroll
        for (float& term : plane) term *= 2.0f;
    }
    if (y % kUnitRows == 0 || y == height()) keep_deficit(y);
    next_event_ = y + kUnitRows - y % kUnitRows;
    if (y < height()) next_event_ = min(next_event_, y < last ? last : height());
  }

  // A window on an edge is its own mirror image: its terms are doubled here and the gradients there
  // halved in the end.
  __device__ void double_edge(LaneTerms& terms) const {
    for_columns_at_edge<Access>(pixels_.first(), width(), [&terms](int c) {
#pragma unroll
      for (auto& plane : terms.of) plane[c] *= 2.0f;
    });
  }

  // Adds up the deficit of the unit that ends above row `y`, if that lies in the piece: rows above
  // and below it are counted by others. Each lane's sum, over up to 32 windows, is rounded to a
  // multiple of 2^-31. A double adds these up exactly, in any order, to 2^22; and no digit is
  // missing in a float near one.
  __device__ void keep_deficit(int y) {
    const GradientPiece& piece = memory_.piece;
    if (y > piece.top && y <= piece.end) {
      constexpr double kCarrier = 1.5 * (1 << 21);
      const bool counts = pixels_.first() >= piece.left && pixels_.first() < piece.right;
      const double rounded = (static_cast<double>(counts ? deficit_ : 0.0f) + kCarrier) - kCarrier;
      const double sum = warp_sum(rounded);
      if (threadIdx.x == 0) memory_.deficit += sum;
    }
    deficit_ = 0.0f;
  }

  template <int kPlane>
  __device__ void load(const LinePlace& lines) {
    constexpr int kMoments = 2 * kPlane * GradientLines::kPlane;
    static_assert(GradientLines::kPlane == RingLines::kMoment);
    const SharedPlace row = place_.row() + kPlane * kRowFloats;
    float columns[kColumns];
    row.load_vector(columns);
    input_.load(row, columns, {lines.now + kMoments, lines.third + kMoments});
  }

  // Stores the terms and the next row of pixels to shared memory, and loads the row after that.
  __device__ void hand_on(const LaneTerms& terms) {
    ++row_;
    offsets_.advance();
    __syncwarp();  // keeps the compiler from waiting for the pixels earlier
    publish(terms);
    take_pixels();
    outputs_.fetch(row_ - 2 * kReach - 1);
    __syncwarp();
  }

  __device__ void take_pixels() {
    enter();
    const PixelSums of_row = pixels_.take(raw_);
    if (row_ % kPairRows == 0) judge(of_row);
    of_first_ = of_row;
    pixels_.ask(row_ + kPairRows, raw_);
  }

  // Stores the terms of the lane's windows to shared memory.
  __device__ void publish(const LaneTerms& terms) const {
    if (!pixels_.is_inside()) return;
    const SharedPlace place = place_.terms() + terms_offset_;
#pragma unroll
    for (int plane = 0; plane < kTermPlanes; ++plane)
      (place + plane * Memory::kTermPitch).store_vector(terms.of[plane]);
  }

  // Copies pixels and terms inside an edge of the image to their mirror images beyond it, by eight
  // lanes for each plane and in five columns. The edge is its own mirror image.
  __device__ void mirror_edge() const {
    if (!has_edge_) return;
    __syncwarp();
    const auto lane = static_cast<unsigned>(anew(threadIdx.x));
    const int plane = static_cast<int>(lane / 8);
    const int distance = static_cast<int>(min(lane % 8, kReach - 1u)) + 1;
    const int inwards = edge_ == kMargin ? distance : -distance;
    const SharedPlace window(memory_.terms + plane * Memory::kTermPitch + edge_);
    (window + -inwards).store((window + inwards).load());
    const SharedPlace pixel(memory_.rows + plane % 2 * kRowFloats + edge_ - terms_offset_ +
                            kMargin);
    (pixel + -inwards).store((pixel + inwards).load());
  }

  static constexpr int kPairsAboutPivots = 4;  // for so many pairs a level remains in use

  const BackwardJob<float>& job_;
  Memory& memory_;
  GradientPixels<Access> pixels_;
  RingSums s_;
  RingSums d_;
  RingInput input_;      // of the next step
  PixelSums of_first_;   // over the lane's pixels of the first row of a pair
  PixelSums last_pair_;  // and of the pair before
  bool s_is_plain_;      // no lane needs pivots for the pair
  bool d_is_plain_;
  int about_pivots_;  // pairs still to be taken about pivots other than zero, this one included
  bool is_plain_;     // neither the pair nor what was begun before needs pivots; uniform in a warp
  RingOutputs<Access, kErrors> outputs_;
  Row raw_;
  LanePlace<Element> place_;
  LineOffsets offsets_;
  int terms_offset_;  // where lane 0's terms begin in their row
  int row_;           // the row of pixels in shared memory
  int next_event_;    // the next row of windows for `take_event`
  bool has_edge_;     // the piece lies at one edge of the image; uniform in a warp
  int edge_;          // where the terms of windows on that edge lie in their row
  float deficit_;     // of the current unit
};

}  // namespace syncfree::ssim
