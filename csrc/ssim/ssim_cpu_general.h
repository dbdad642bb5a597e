// The general path, for everything else: volumes, float64, windows of any size, any padding. Plain
// separable loops in double: depth, then height into accumulators for each row of outputs, then
// width.

// The pivot of a plane: the mean of 32 pixels of preds on a fixed grid. Subtracting it from the
// pixels saves the digits that E[x^2] - E[x]^2 would cancel.
inline constexpr int kPivotSamples = 32;

struct Position {
  std::int64_t z;
  std::int64_t y;
  std::int64_t x;
};

inline Position pivot_sample(int k, std::int64_t depth, std::int64_t height, std::int64_t width) {
  const int row = k / 4, column = k % 4, slice = 5 * row % 8;
  return {(2 * slice + 1) * depth / 16, (2 * row + 1) * height / 16, (2 * column + 1) * width / 8};
}

// Zero if the samples have no finite mean.
inline double pivot_from_sum(double sum) {
  const double twice = sum * (2.0 / kPivotSamples);
  return twice - twice == 0.0 ? 0.5 * twice : 0.0;
}

// `load(z, y, x)` reads a pixel of preds as the kernel does, clamp included. Samples are summed in
// pairs, so that the pivot of equal samples is exactly their value.
template <class Load>
double plane_pivot(std::int64_t depth, std::int64_t height, std::int64_t width, Load&& load) {
  double sums[kPivotSamples];
  for (int k = 0; k < kPivotSamples; ++k) {
    const Position p = pivot_sample(k, depth, height, width);
    sums[k] = load(p.z, p.y, p.x);
  }
  for (int step = kPivotSamples / 2; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) sums[k] += sums[k + step];
  return pivot_from_sum(sums[0]);
}

// Adds the weighted moments of one row; `moments` holds four rows of `pitch`: s, d, s^2, d^2.
inline void add_moments(const double* __restrict s, const double* __restrict d, double weight,
                        std::int64_t count, std::int64_t pitch, double* __restrict moments) {
  for (std::int64_t i = 0; i < count; ++i) {
    moments[i] += weight * s[i];
    moments[i + pitch] += weight * d[i];
    moments[i + 2 * pitch] += weight * (s[i] * s[i]);
    moments[i + 3 * pitch] += weight * (d[i] * d[i]);
  }
}

inline void add_scaled(const double* __restrict from, double weight, std::int64_t count,
                       double* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

inline double sum_of(const double* values, std::int64_t count) {
  constexpr int kCount = Lanes<double>::kCount;
  Lanes<double>::Vector sums = {};
  std::int64_t i = 0;
  for (; i + kCount <= count; i += kCount) sums += load(values + i);
  double sum = 0.0;
  for (int lane = 0; lane < kCount; ++lane) sum += sums[lane];
  for (; i < count; ++i) sum += values[i];
  return sum;
}

class General {
 public:
  explicit General(const Plan& plan)
      : plan_(plan),
        depth_(plan.axes[kDepth]),
        height_(plan.axes[kHeight]),
        width_(plan.axes[kWidth]),
        pitch_(((width_.piece + width_.taps) / 8 | 1) * 8 + 8),
        memory_((10 + 4 * height_.piece) * pitch_ * sizeof(double)),
        // Mirroring may need the whole row, wherever the piece lies.
        preds_(width_.input),
        target_(width_.input),
        sum_(static_cast<double*>(memory_.data())),
        difference_(sum_ + pitch_),
        filtered_(difference_ + pitch_),
        moments_(filtered_ + 4 * pitch_),
        accumulators_(moments_ + 4 * pitch_) {}

  void run(const Unit& unit, UnitTotals& sums) {
    plane_ = unit.plane;
    shift_ = 2.0 * plan_.constants.scale * pivot();
    const std::int64_t x = width_.begin(unit.piece[kWidth]);
    const std::int64_t columns = width_.end(unit.piece[kWidth]) - x;
    const std::int64_t top = height_.begin(unit.piece[kHeight]);
    const std::int64_t bottom = height_.end(unit.piece[kHeight]);
    for (std::int64_t z = depth_.begin(unit.piece[kDepth]); z < depth_.end(unit.piece[kDepth]);
         ++z) {
      filter_block(z, top, bottom, x, columns);
      for (std::int64_t y = top; y < bottom; ++y) {
        filter_width(accumulators_ + (y - top) * 4 * pitch_, columns);
        finish_row(z, y, x, columns, sums);
      }
    }
    if (plan_.wants_errors()) add_errors(unit, sums);
    if (plan_.wants_pooled())
      pool_images(plan_, plane_, own_pixels(unit), preds_.data(), target_.data());
  }

 private:
  double pivot() const {
    const Problem& problem = *plan_.problem;
    const TensorView& preds = problem.preds;
    const auto clamp = make_clamp<double>(problem.range, preds.dtype, problem.target.dtype);
    return plane_pivot(depth_.input, height_.input, width_.input,
                       [&](std::int64_t z, std::int64_t y, std::int64_t x) {
                         const double value =
                             load_as<double>(preds.data, preds.dtype,
                                             row_offset(preds, plane_, z, y) + x * preds.stride[4]);
                         return clamp(value);
                       });
  }

  void read(std::int64_t z, std::int64_t y, std::int64_t x, std::int64_t count) {
    const Problem& problem = *plan_.problem;
    read_sum_and_difference<double>(plan_, row_offset(problem.preds, plane_, z, y),
                                    row_offset(problem.target, plane_, z, y), x, count, shift_,
                                    preds_.data(), target_.data(), sum_, difference_);
  }

  void filter_block(std::int64_t z, std::int64_t top, std::int64_t bottom, std::int64_t x,
                    std::int64_t columns) {
    const std::int64_t count = columns + width_.taps - 1;
    std::fill_n(accumulators_, (bottom - top) * 4 * pitch_, 0.0);
    for (std::int64_t y = top - height_.pad; y < bottom - height_.pad + height_.taps - 1; ++y) {
      std::fill_n(moments_, 4 * pitch_, 0.0);
      for (int k = 0; k < depth_.taps; ++k) {
        read(mirror(z - depth_.pad + k, depth_.input), mirror(y, height_.input), x - width_.pad,
             count);
        add_moments(sum_, difference_, depth_.weights[k], count, pitch_, moments_);
      }
      for (std::int64_t output = top; output < bottom; ++output) {
        const std::int64_t k = y - (output - height_.pad);
        if (k < 0 || k >= height_.taps) continue;
        add_scaled(moments_, height_.weights[k], 4 * pitch_,
                   accumulators_ + (output - top) * 4 * pitch_);
      }
    }
  }

  void filter_width(const double* moments, std::int64_t columns) {
    std::fill_n(filtered_, 4 * pitch_, 0.0);
    for (int moment = 0; moment < 4; ++moment)
      for (int k = 0; k < width_.taps; ++k)
        add_scaled(moments + moment * pitch_ + k, width_.weights[k], columns,
                   filtered_ + moment * pitch_);
  }

  void finish_row(std::int64_t z, std::int64_t y, std::int64_t x, std::int64_t columns,
                  UnitTotals& sums) {
    // The results replace the moments of s and d.
    double* similarity = filtered_;
    double* contrast = filtered_ + pitch_;
    for (std::int64_t i = 0; i < columns; i += Lanes<double>::kCount) {
      const auto s = load(filtered_ + i), d = load(filtered_ + pitch_ + i);
      const auto s_variance = load(filtered_ + 2 * pitch_ + i) - s * s;
      const auto d_variance = load(filtered_ + 3 * pitch_ + i) - d * d;
      const auto lacks = deficits(s + shift_, s_variance, d, d_variance, plan_.constants.twice_c1,
                                  plan_.constants.twice_c2);
      store(similarity + i, lacks.similarity);
      store(contrast + i, lacks.contrast);
    }
    sums.deficit += sum_of(similarity, columns);
    if (depth_.in_crop(z) && height_.in_crop(y)) {
      const std::int64_t begin = std::clamp<std::int64_t>(width_.pad - x, 0, columns);
      const std::int64_t end =
          std::clamp<std::int64_t>(width_.output - width_.pad - x, begin, columns);
      sums.contrast_deficit += sum_of(contrast + begin, end - begin);
    }
    if (plan_.problem->map == nullptr) return;
    for (std::int64_t i = 0; i < columns; ++i) similarity[i] = std::max(1.0 - similarity[i], -1.0);
    const std::int64_t row = (plane_ * depth_.output + z) * height_.output + y;
    store_row(*plan_.problem, row * width_.output + x, similarity, columns);
  }

  // A pixel belongs to the unit of the output with its index; pixels past the last output belong to
  // the last unit.
  Box own_pixels(const Unit& unit) const {
    Box box;
    for (AxisName name : {kDepth, kHeight, kWidth}) {
      const AxisPlan& axis = plan_.axes[name];
      const bool last = unit.piece[name] == axis.pieces() - 1;
      box.begin[name] = std::min(axis.begin(unit.piece[name]), axis.input);
      box.end[name] = last ? axis.input : std::min(axis.end(unit.piece[name]), axis.input);
    }
    return box;
  }

  void add_errors(const Unit& unit, UnitTotals& sums) {
    const auto [begin, end] = own_pixels(unit);
    if (begin[kWidth] == end[kWidth]) return;
    for (std::int64_t z = begin[kDepth]; z < end[kDepth]; ++z)
      for (std::int64_t y = begin[kHeight]; y < end[kHeight]; ++y) {
        read(z, y, begin[kWidth], end[kWidth] - begin[kWidth]);
        for (std::int64_t i = 0; i < end[kWidth] - begin[kWidth]; ++i) {
          sums.squared_error += difference_[i] * difference_[i];
          sums.absolute_error += std::fabs(difference_[i]);
        }
      }
  }

  const Plan& plan_;
  const AxisPlan& depth_;
  const AxisPlan& height_;
  const AxisPlan& width_;
  const std::int64_t pitch_;  // doubles
  AlignedMemory memory_;

  std::vector<double> preds_;
  std::vector<double> target_;
  double* const sum_;
  double* const difference_;
  double* const filtered_;      // four moments of one row of outputs
  double* const moments_;       // four moments of one row of inputs, filtered along the depth
  double* const accumulators_;  // the same for each row of outputs, filtered along the height too

  std::int64_t plane_ = 0;
  double shift_ = 0.0;  // has been subtracted from s
};

void general_units(const Plan& plan, std::int64_t begin, std::int64_t end) {
  General general(plan);
  for (std::int64_t i = begin; i < end; ++i) general.run(unit_at(plan, i), plan.partial[i]);
}
