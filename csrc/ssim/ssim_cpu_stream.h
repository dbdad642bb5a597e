// The stream, the fast path for 2-D images in float32. Each row is filtered horizontally once; a
// ring buffer of filtered rows feeds a vertical pass that keeps four rows of outputs in registers
// and ends in the formula.
//
// Both passes take moments about a pivot from the middle of each lane's own window and never form
// E[x^2] - E[x]^2 of raw pixels. Bright flat regions keep all their digits, without one pivot that
// suits some parts of an image and not others. The price is instructions that fill idle slots.

using Vec = Lanes<float>::Vector;
inline constexpr int kLanes = Lanes<float>::kCount;
inline constexpr int kBlockRows = 4;  // rows of outputs in one vertical pass

// For prefetching: where the row to be read next starts, and how far apart its pixels are.
struct Ahead {
  const char* row;
  std::int64_t step;  // bytes
};

// Means and variances over the horizontal window. `row` begins taps / 2 columns before the first
// output; `weights[k]` belongs to the taps at distance k from the middle of the window. Two vectors
// at once keep the adders busy; meanwhile the next row is prefetched.
template <int Taps>
void filter_row(const float* __restrict row, const float* weights, int run_time_taps,
                std::int64_t count, Ahead ahead, float* __restrict mean,
                float* __restrict variance) {
  const int half = (Taps > 0 ? Taps : run_time_taps) / 2;
  constexpr int kTogether = 2;
  for (std::int64_t x = 0; x < count; x += kTogether * kLanes) {
    Vec pivot[kTogether], first[kTogether] = {}, second[kTogether] = {};
#pragma GCC unroll 2
    for (int i = 0; i < kTogether; ++i) {
      __builtin_prefetch(ahead.row + (x + i * kLanes) * ahead.step);
      pivot[i] = load(row + x + half + i * kLanes);
    }
#pragma GCC unroll 16
    for (int k = 1; k <= half; ++k) {
#pragma GCC unroll 2
      for (int i = 0; i < kTogether; ++i) {
        const float* centre = row + x + half + i * kLanes;
        const Vec left = load(centre - k) - pivot[i];
        const Vec right = load(centre + k) - pivot[i];
        first[i] += weights[k] * (left + right);
        second[i] += weights[k] * (left * left + right * right);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kTogether; ++i) {
      store(mean + x + i * kLanes, pivot[i] + first[i]);
      store(variance + x + i * kLanes, second[i] - first[i] * first[i]);
    }
  }
}

// Means and variances of kBlockRows outputs, one below the other, from the filtered rows of all
// their windows. The pivot is the mean of the two middle rows. They lie in the window of each
// output, so that a NaN outside a window stays outside, and have enough weight in each that the
// pivot is not far from its mean.
template <int Taps>
inline void filter_columns(const float* const* rows, std::int64_t mean_at, std::int64_t variance_at,
                           const float* weights, int run_time_taps, Vec (&mean)[kBlockRows],
                           Vec (&variance)[kBlockRows]) {
  const int taps = Taps > 0 ? Taps : run_time_taps;
  const int row_count = taps + kBlockRows - 1;
  const Vec pivot =
      0.5f * (load(rows[row_count / 2 - 1] + mean_at) + load(rows[row_count / 2] + mean_at));
  Vec first[kBlockRows] = {}, second[kBlockRows] = {};
#pragma GCC unroll 32
  for (int row = 0; row < row_count; ++row) {
    const Vec shifted = load(rows[row] + mean_at) - pivot;
    const Vec square = load(rows[row] + variance_at) + shifted * shifted;
#pragma GCC unroll 4
    for (int output = 0; output < kBlockRows; ++output) {
      const int k = row - output;
      if (k < 0 || k >= taps) continue;
      const float weight = weights[k < taps / 2 ? taps / 2 - k : k - taps / 2];
      first[output] += weight * shifted;
      second[output] += weight * square;
    }
  }
  for (int output = 0; output < kBlockRows; ++output) {
    mean[output] = pivot + first[output];
    variance[output] = second[output] - first[output] * first[output];
  }
}

// The lanes whose column, counted from that of lane 0, lies in [begin, end).
using LaneMask = std::int32_t __attribute__((vector_size(SYNCFREE_VECTOR_BYTES)));
inline LaneMask lanes_within(std::int64_t begin, std::int64_t end) {
  LaneMask lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return (lane >= static_cast<std::int32_t>(std::clamp<std::int64_t>(begin, 0, kLanes))) &
         (lane < static_cast<std::int32_t>(std::clamp<std::int64_t>(end, 0, kLanes)));
}

// Per-lane sums that keep what each addition rounds away (Kahan summation): as good as double,
// without conversions.
struct LaneSums {
  Vec sum = {};
  Vec lost = {};

  void add(const Vec& v) {
    const Vec next = sum + v;
    lost += (sum - next) + v;
    sum = next;
  }
  double total() const {
    double total = 0.0;
    for (int i = 0; i < kLanes; ++i)
      total += std::isinf(sum[i]) ? sum[i] : static_cast<double>(sum[i]) + lost[i];
    return total;
  }
};

// Walks down strips of columns, one strip after the other in the same memory.
class Stream {
 public:
  explicit Stream(const Plan& plan)
      : plan_(plan),
        height_(plan.axes[kHeight]),
        width_(plan.axes[kWidth]),
        ring_rows_(height_.taps + kBlockRows - 1),
        // An odd number of cache lines, so that the rows of the ring do not compete for one cache
        // set.
        pitch_(((width_.piece + width_.taps + kLanes) / 16 | 1) * 16 + 32),
        memory_((4 + kBlockRows + 4 * ring_rows_) * pitch_ * sizeof(float)) {
    float* next = static_cast<float*>(memory_.data());
    for (float** rows : {&preds_, &target_, &sum_, &difference_}) {
      *rows = next;
      next += pitch_;
    }
    map_ = next;
    ring_ = next + kBlockRows * pitch_;
    std::copy(height_.weights.begin() + height_.taps / 2, height_.weights.end(), column_weights_);
    std::copy(width_.weights.begin() + width_.taps / 2, width_.weights.end(), row_weights_);
  }

  // `count` units, one below the other.
  void run(const Unit& unit, std::int64_t count, UnitTotals* sums) {
    plane_ = unit.plane;
    x_ = width_.begin(unit.piece[kWidth]);
    columns_ = width_.end(unit.piece[kWidth]) - x_;
    const std::int64_t first_piece = unit.piece[kHeight];
    const std::int64_t begin = height_.begin(first_piece);
    const std::int64_t end = height_.end(first_piece + count - 1);
    const auto sums_of = [&](std::int64_t y) -> UnitTotals& {
      return sums[y / height_.piece - first_piece];
    };

    std::int64_t input = begin - height_.pad;  // the next row to enter the ring
    for (std::int64_t y = begin; y < end; y += kBlockRows) {
      const std::int64_t first_input = y - height_.pad;
      for (; input < first_input + ring_rows_; ++input) {
        filter_input(input);
        if (plan_.wants_errors() && input >= begin && input < end) add_errors(sums_of(input));
        if (plan_.wants_pooled() && input > begin && input < end && input % 2 == 1)
          pool_images(plan_, plane_, {{0, input - 1, x_}, {1, input + 1, x_ + columns_}}, preds_,
                      target_);
      }
      for (int i = 0; i < ring_rows_; ++i) rows_[i] = ring_row(first_input + i);
      const int outputs = static_cast<int>(std::min<std::int64_t>(kBlockRows, end - y));
      switch (height_.taps) {
        case 7:
          finish_block<7>(y, outputs, sums_of(y));
          break;
        case 11:
          finish_block<11>(y, outputs, sums_of(y));
          break;
        default:
          finish_block<0>(y, outputs, sums_of(y));
      }
      if (plan_.problem->map != nullptr) store_map(y, outputs);
    }
  }

 private:
  float* ring_row(std::int64_t input) const {
    return ring_ + (input + height_.pad) % ring_rows_ * 4 * pitch_;
  }

  // The row of the image that enters the ring as row `input`. The last block may reach further down
  // than its outputs need; it then repeats the last row of the padding.
  std::int64_t image_row(std::int64_t input) const {
    return mirror(std::min(input, height_.input - 1 + height_.pad), height_.input);
  }

  Ahead ahead(const TensorView& image, std::int64_t input) const {
    const std::int64_t bytes = size_of(image.dtype);
    const std::int64_t offset = row_offset(image, plane_, 0, image_row(input)) +
                                std::max<std::int64_t>(x_ - width_.pad, 0) * image.stride[4];
    return {static_cast<const char*>(image.data) + offset * bytes, image.stride[4] * bytes};
  }

  void filter_input(std::int64_t input) {
    const Problem& problem = *plan_.problem;
    const std::int64_t y = image_row(input);
    read_sum_and_difference<float>(
        plan_, row_offset(problem.preds, plane_, 0, y), row_offset(problem.target, plane_, 0, y),
        x_ - width_.pad, columns_ + width_.taps - 1, 0.0f, preds_, target_, sum_, difference_);
    switch (width_.taps) {
      case 7:
        filter_sum_and_difference<7>(input);
        break;
      case 11:
        filter_sum_and_difference<11>(input);
        break;
      default:
        filter_sum_and_difference<0>(input);
    }
  }

  template <int Taps>
  void filter_sum_and_difference(std::int64_t input) const {
    float* to = ring_row(input);
    filter_row<Taps>(sum_, row_weights_, width_.taps, columns_,
                     ahead(plan_.problem->preds, input + 1), to, to + pitch_);
    filter_row<Taps>(difference_, row_weights_, width_.taps, columns_,
                     ahead(plan_.problem->target, input + 1), to + 2 * pitch_, to + 3 * pitch_);
  }

  template <int Taps>
  void finish_block(std::int64_t y, int outputs, UnitTotals& sums) {
    const float c1 = static_cast<float>(plan_.constants.twice_c1);
    const float c2 = static_cast<float>(plan_.constants.twice_c2);
    const bool wants_value = plan_.wants_value();
    const bool wants_map = plan_.problem->map != nullptr;
    const bool wants_contrast = plan_.problem->contrast != nullptr;
    LaneSums similarity_sum, contrast_sum;
    for (std::int64_t x = 0; x < columns_; x += kLanes) {
      Vec s_mean[kBlockRows], s_variance[kBlockRows], d_mean[kBlockRows], d_variance[kBlockRows];
      filter_columns<Taps>(rows_, x, x + pitch_, column_weights_, height_.taps, s_mean, s_variance);
      filter_columns<Taps>(rows_, x + 2 * pitch_, x + 3 * pitch_, column_weights_, height_.taps,
                           d_mean, d_variance);
      Vec similarities = {}, contrasts = {};
      for (int output = 0; output < outputs; ++output) {
        const Deficits<Vec> lacks = deficits(s_mean[output], s_variance[output], d_mean[output],
                                             d_variance[output], c1, c2);
        if (wants_value) similarities += lacks.similarity;
        if (wants_map) store(map_ + output * pitch_ + x, ssim_of(lacks.similarity));
        if (wants_contrast && height_.in_crop(y + output)) contrasts += lacks.contrast;
      }
      const std::int64_t left = columns_ - x;
      similarity_sum.add(lanes_within(0, left) ? similarities : Vec{});
      if (wants_contrast) {
        const std::int64_t crop_begin = width_.pad - (x_ + x);
        const std::int64_t crop_end = width_.output - width_.pad - (x_ + x);
        contrast_sum.add(lanes_within(crop_begin, std::min(left, crop_end)) ? contrasts : Vec{});
      }
    }
    sums.deficit += similarity_sum.total();
    sums.contrast_deficit += contrast_sum.total();
  }

  void add_errors(UnitTotals& sums) const {
    LaneSums square, absolute;
    for (std::int64_t x = 0; x < columns_; x += kLanes) {
      const Vec all = load(difference_ + width_.pad + x);
      const Vec d = lanes_within(0, columns_ - x) ? all : Vec{};
      square.add(d * d);
      absolute.add(d < 0 ? -d : d);
    }
    sums.squared_error += square.total();
    sums.absolute_error += absolute.total();
  }

  void store_map(std::int64_t y, int outputs) const {
    for (int output = 0; output < outputs; ++output) {
      const std::int64_t at = (plane_ * height_.output + y + output) * width_.output + x_;
      store_row(*plan_.problem, at, map_ + output * pitch_, columns_);
    }
  }

  const Plan& plan_;
  const AxisPlan& height_;
  const AxisPlan& width_;
  const int ring_rows_;
  const std::int64_t pitch_;  // floats
  AlignedMemory memory_;

  float* preds_;
  float* target_;
  float* sum_;
  float* difference_;
  float* map_;
  float* ring_;  // a row: means of s, variances of s, means of d, variances of d
  const float* rows_[kMaxStreamTaps + kBlockRows - 1];
  float column_weights_[kMaxStreamTaps / 2 + 1];
  float row_weights_[kMaxStreamTaps / 2 + 1];

  std::int64_t plane_ = 0;
  std::int64_t x_ = 0;
  std::int64_t columns_ = 0;
};

void stream_units(const Plan& plan, std::int64_t begin, std::int64_t end) {
  Stream stream(plan);
  while (begin < end) {
    const Unit unit = unit_at(plan, begin);
    const std::int64_t count =
        std::min(end - begin, plan.axes[kHeight].pieces() - unit.piece[kHeight]);
    stream.run(unit, count, plan.partial + begin);
    begin += count;
  }
}
