// The walk of one warp down a uniform strip: rows enter, outputs leave.
#pragma once

#include <type_traits>

#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_pixels.cuh"
#include "ssim/ssim_uniform_rows.cuh"
#include "ssim/ssim_uniform_sums.cuh"
#include "ssim/ssim_unit_sums.cuh"

namespace syncfree::ssim {

// Shared memory of one warp.
struct UniformMemory {
  struct Pair {
    float sums[4 * kUniformSums];  // the line of the pair, s before d
    float pixels[kUniformPair];
  };
  // Of each lane, the levels of the previous pairs, the latest first. The same in the whole warp,
  // how many pairs, including the current one, are to be taken about pivots other than zero: of s
  // or d, and of d alone.
  struct History {
    SumDifference level[kUniformPairs];
    int about_pivots;
    int d_about_pivots;
  };

  alignas(16) Pair pairs[kUniformPairs];
  History history[32];
  UnitSums sums;
};

template <class Rows, StripTask kTask>
class UniformWalk {
 public:
  __device__ UniformWalk(const Job<float>& job, const StripUnits& units, UniformMemory& memory,
                         const Constants<float>& constants)
      : job_(job),
        units_(units),
        memory_(memory),
        constants_(constants),
        bound_of_s_(Rules::bound_for_mean(!fits_patches(job.geometry), constants.twice_c2)),
        outputs_(job, constants) {}

  // Units [first, first + count), one below the other in one strip.
  __device__ void run(std::int64_t first, int count) {
    const Geometry& g = job_.geometry;
    const std::int64_t strip = first / units_.of_strip;
    const std::int64_t plane = strip / units_.strips;
    const int strip_begin = static_cast<int>(strip - plane * units_.strips) * kUniformColumns;
    const int begin = static_cast<int>(first - strip * units_.of_strip) * units_.rows;
    const int width = static_cast<int>(g.size[2]);
    const UniformColumns columns(strip_begin, width);
    end_ = min(begin + count * units_.rows, height());
    int first_output = begin, end_output = end_;
    if (outputs_.leaves_border_out()) {
      first_output = max(begin, kHalo);
      end_output = min(end_, height() - kHalo);
    }
    first_counting_ = first_output + kHalo;
    counting_ = static_cast<unsigned>(max(end_output - first_output, 0));
    before_ = columns.before;
    behind_ = columns.behind;
    mirrors_ = Rows::kAligned && __any_sync(kWarp, before_ || behind_);
    outputs_.start(columns.inside ? columns.first : width);

    const std::int64_t image = plane / g.channels;
    const auto rows_from = [&](int row) {
      return Rows(job_.preds, job_.target, g, image, plane - image * g.channels, columns, row);
    };
    int row = begin - kHalo;
    Pixels samples[kSamples];
    for (int i = 0; i < kSamples; ++i)
      rows_from(height() / (kSamples + 1) * (i + 1)).next(samples[i]);
    Rows rows = rows_from(row - 2);
    rows.begin();
    begin_lines(rows);
    minus_level_ = -level_of_strip(samples);
    s_.clear();
    d_.clear();
    memory_.history[threadIdx.x % 32] = {};
    memory_.sums.clear();
    last_pair_ = {};
    about_zero_ = true;
    enter(rows, line_[0]);  // only for `last_pair_`
    advance<1>();
    enter(rows, line_[0]);
    for (int unit = -1; unit < count; ++unit) {  // -1: the first rows complete nothing
      const int end = min(begin + (unit + 1) * units_.rows, height()) + kHalo;
      while (row < end) {
        if (!is_plain_) {
          add_pair_about_pivots(rows, row);
          row += 2;
          continue;
        }
        // A loop of its own, so that pairs about pivots cost it no registers. It takes three pairs
        // in one turn, so that the place of each line is known.
        for (;;) {
          add_pair<0>(rows, row, NoPivots{}, NoPivots{});
          row += 2;
          if (!is_plain_ || row >= end) {
            advance<1>();
            settle();
            break;
          }
          add_pair<1>(rows, row, NoPivots{}, NoPivots{});
          row += 2;
          if (!is_plain_ || row >= end) {
            advance<2>();
            settle();
            break;
          }
          add_pair<2>(rows, row, NoPivots{}, NoPivots{});
          row += 2;
          if (!is_plain_ || row >= end) break;
        }
      }
      if (unit < 0)
        outputs_.forget(begin == 0);
      else
        outputs_.flush(first + unit, memory_.sums);
    }
    wait_for_copies<0>();
    memory_.sums.template complete<kTask>(job_.results, image, count);
  }

 private:
  using Pixels = PixelsOfLane<typename Rows::Element>;
  using Rules = LevelRules<UniformWindow>;
  static constexpr int kHalo = UniformWindow::kHalo;
  static constexpr float kTapSum = static_cast<float>(kTapSumOf<UniformWindow>);
  static constexpr int kSamples = 3;  // rows of a strip from which its level is taken

  __device__ void begin_lines(Rows& rows) {
#pragma unroll
    for (int i = 0; i < kUniformPairs; ++i) {
      line_[i] = SharedPlace(memory_.pairs[i].sums + kColumns * (threadIdx.x % 32));
      rows.copy_pair(pixels_of(line_[i]));
      for (int sums = 0; sums < 4; ++sums)
        (line_[i] + sums * kUniformSums).store_vector({0.0f, 0.0f, 0.0f, 0.0f});
    }
  }

  static __device__ SharedPlace pixels_of(SharedPlace line) { return line + 4 * kUniformSums; }

  template <int kBy>
  __device__ void advance() {
    const SharedPlace line[] = {line_[0], line_[1], line_[2]};
#pragma unroll
    for (int i = 0; i < kUniformPairs; ++i) line_[i] = line[(i + kBy) % kUniformPairs];
  }

  // Takes the next pair, which has come from memory, and begins to copy the third pair after it.
  __device__ void enter(Rows& rows, SharedPlace line) {
    wait_for_copies<kUniformPairs - 1>();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Pixels pixels;
      pixels.load(pixels_of(line) + 2 * r * kUniformRow);
      convert(pixels, x_[r]);
    }
    rows.copy_pair(pixels_of(line));
    if (mirrors_) {
      __syncwarp();  // keeps this a branch: selects would cost all strips registers
      mirror_columns(x_[0]);
      mirror_columns(x_[1]);
    }
    PixelSums pair = of_row(0) + of_row(1);
    pair.square.s = 0.0f;  // never used
    const PixelSums two_pairs = last_pair_ + pair;
    last_pair_ = pair;
    s_needs_none_ = Rules::s_is_within(bound_of_s_, two_pairs);
    d_needs_none_ = Rules::d_needs_none(two_pairs, constants_.twice_c2);
    is_plain_ = __all_sync(kWarp, s_needs_none_ && d_needs_none_ && about_zero_);
  }

  __device__ PixelSums of_row(int r) const { return PixelSums::of(x_[r].s, x_[r].d); }

  __device__ void add_pair_about_pivots(Rows& rows, int row) {
    // If one lane needs pivots, all lanes take them: beside an edge windows need a pivot, though
    // the lane at the edge asks for none. Where d needs pivots, s takes them too.
    const bool is_plain = __all_sync(kWarp, s_needs_none_ && d_needs_none_);
    const bool d_is_plain = __all_sync(kWarp, d_needs_none_);
    SumDifference level = Rules::level_of(last_pair_, [this](int i) {
      return SumDifference{x_[i / kColumns].s[i % kColumns], x_[i / kColumns].d[i % kColumns]};
    });
    if (is_plain) level.s = 0.0f;
    if (d_is_plain) level.d = 0.0f;
    UniformMemory::History& history = memory_.history[threadIdx.x % 32];
    constexpr int kPairs = kUniformPairs + 1;
    history.about_pivots = is_plain ? history.about_pivots - 1 : kPairs;
    history.d_about_pivots = d_is_plain ? max(history.d_about_pivots - 1, 0) : kPairs;
    about_zero_ = history.about_pivots <= 1;
    const SumDifference last = history.level[0], open = history.level[1], oldest = history.level[2];
    history.level[0] = level;
    history.level[1] = last;
    history.level[2] = open;
    const UniformPivots about_s{level.s, last.s, open.s, oldest.s};
    s_.move_pivot(oldest.s, open.s);
    if (history.d_about_pivots == 0) {
      add_pair<0>(rows, row, about_s, NoPivots{});
    } else {
      const UniformPivots about_d{level.d, last.d, open.d, oldest.d};
      d_.move_pivot(oldest.d, open.d);
      add_pair<0>(rows, row, about_s, about_d);
    }
    advance<1>();
  }

  // Adds up the rows `row` and `row` + 1, computes the outputs of the rows kHalo above them, and
  // lets the next pair enter.
  template <int kLine, class AboutS, class AboutD>
  __device__ void add_pair(Rows& rows, int row, const AboutS& about_s, const AboutD& about_d) {
    // The errors of a unit are those of the rows that are taken while its outputs leave; the first
    // unit of a strip has those of the rows before, too (`forget`). So each row is counted once,
    // wherever a warp begins.
    if constexpr (kAddsErrors<kTask>)
      for (int r = 0; r < 2; ++r)
        outputs_.template add_errors<Rows::kAligned>(x_[r].d, of_row(r).square.d, row + r);
    StripMoments sums;
    d_.add_first(x_[0].d, about_d, sums.d, sums.dd);
    s_.add_first(x_[0].s, about_s, sums.s, sums.ss);
    add_outputs(sums, row, counts(row, true), about_s, about_d);
    d_.add_second(x_[1].d, about_d, line_[kLine] + 2 * kUniformSums, sums.d, sums.dd);
    s_.add_second(x_[1].s, about_s, line_[kLine], sums.s, sums.ss);
    add_outputs(sums, row + 1, counts(row + 1, false), about_s, about_d);
    enter(rows, line_[(kLine + 1) % kUniformPairs]);
  }

  // Whether the row completes an output that counts.
  __device__ bool counts(int row, bool is_first_of_pair) const {
    if constexpr (kTask == StripTask::kValue)
      return is_first_of_pair || row < end_ + kHalo;
    else
      return static_cast<unsigned>(row - first_counting_) < counting_;
  }

  template <class AboutS, class AboutD>
  __device__ void add_outputs(const StripMoments& sums, int row, bool counted,
                              const AboutS& about_s, const AboutD& about_d) {
    float zero_s = __fmul_rn(-minus_level_, kTapSum);
    if constexpr (std::is_same_v<AboutS, UniformPivots>)
      zero_s = fmaf(about_s.open, kTapSum, zero_s);
    const int y = row - kHalo;
    if constexpr (std::is_same_v<AboutD, UniformPivots>)
      outputs_.add_row(sums, y, counted, zero_s, __fmul_rn(about_d.open, kTapSum));
    else
      outputs_.add_row(sums, y, counted, zero_s);
  }

  // The level of the strip, which is subtracted from s: the mean of a few of its rows, the same
  // wherever a warp begins.
  __device__ float level_of_strip(const Pixels (&rows)[kSamples]) {
    minus_level_ = 0.0f;
    float sum = 0.0f;
    for (const Pixels& row : rows) {
      OwnColumns<kColumns> x;
      convert(row, x);
      if (mirrors_) mirror_columns(x);
      sum += mean_of_usual<Rules>(PixelSums::over(x.s) * (1.0f / kColumns));
    }
    return sum * (1.0f / kSamples);
  }

  __device__ void convert(const Pixels& pixels, OwnColumns<kColumns>& own) const {
    if constexpr (std::is_same_v<typename Rows::Element, std::uint8_t> && !kClamps<kTask>) {
      convert_bytes(pixels, own);
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const SumDifference x = sum_difference(to<float>(pixels.a[c]), to<float>(pixels.b[c]));
        own.s[c] = x.s;
        own.d[c] = x.d;
      }
    }
  }

  // The same bits as by sum_difference(), since everything but the addition of the level is exact.
  // Conversions by the hardware have a quarter of the rate, and share a unit with the reciprocals.
  __device__ void convert_bytes(const Pixels& pixels, OwnColumns<kColumns>& own) const {
    float a[kColumns], b[kColumns];
    in_last_bits(pixels.a, a);
    in_last_bits(pixels.b, b);
    const float scale = constants_.scale, zero = __fmul_rn(-0x1p23f, scale);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float x = fmaf(a[c], scale, zero), y = fmaf(b[c], scale, zero);
      own.s[c] = (x + y) + minus_level_;
      own.d[c] = __fsub_rn(x, y);
    }
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

  // Turns a vector beside the image's edge into its mirror image.
  __device__ void mirror_columns(OwnColumns<kColumns>& x) const {
    const auto exchange = [](bool condition, float& one, float& other) {
      const float kept = one;
      one = condition ? other : one;
      other = condition ? kept : other;
    };
    exchange(before_, x.s[1], x.s[3]);
    exchange(before_, x.d[1], x.d[3]);
    exchange(behind_, x.s[0], x.s[2]);
    exchange(behind_, x.d[0], x.d[2]);
  }

  __device__ void settle() {
    s_.settle();
    d_.settle();
#ifdef __CUDA_ARCH__
#pragma unroll
    for (OwnColumns<kColumns>& x : x_)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) asm volatile("" : "+f"(x.s[c]), "+f"(x.d[c]));
#endif
  }

  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }

  const Job<float>& job_;
  const StripUnits& units_;
  UniformMemory& memory_;
  const Constants<float> constants_;
  const float bound_of_s_;
  UniformPairs s_;
  UniformPairs d_;
  OwnColumns<kColumns> x_[2];  // of the pair that has entered
  PixelSums last_pair_;        // its sums over the lane's pixels
  bool s_needs_none_;
  bool d_needs_none_;
  bool is_plain_;
  bool about_zero_;  // all partial sums are about zero; the same in a warp
  float minus_level_;
  StripOutputs<kTask, UniformWindow> outputs_;
  SharedPlace line_[kUniformPairs];  // of the pair that has entered, and of the two after it
  int end_;                          // of the rows whose outputs belong to the units
  int first_counting_;               // of the rows that complete an output that counts
  unsigned counting_;                // number of these
  bool before_;
  bool behind_;
  bool mirrors_;
};

}  // namespace syncfree::ssim
