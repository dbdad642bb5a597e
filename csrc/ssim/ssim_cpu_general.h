// The path for everything else: volumes, float64, windows of any size, any padding. Plain separable
// loops in double: depth, then height into one row of accumulators per output, then width.

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

  void run(const Unit& unit, PartialSums& sums) {
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
  }

 private:
  double pivot() const {
    const TensorView& preds = plan_.problem->preds;
    const Clamp<double> clamp = make_clamp<double>(plan_.problem->range);
    return plane_pivot<double>(depth_.input, height_.input, width_.input,
                               [&](std::int64_t z, std::int64_t y, std::int64_t x) {
                                 const double value = load_as<double>(
                                     preds.data, preds.dtype,
                                     row_offset(preds, plane_, z, y) + x * preds.stride[4]);
                                 return clamp.enabled ? clamp(value) : value;
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
                  PartialSums& sums) {
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
    for (std::int64_t i = 0; i < columns; ++i) similarity[i] = 1.0 - similarity[i];
    const std::int64_t row = (plane_ * depth_.output + z) * height_.output + y;
    store_row(*plan_.problem, row * width_.output + x, similarity, columns);
  }

  // Each pixel belongs to the unit with its index, those behind the last output to the last unit.
  void add_errors(const Unit& unit, PartialSums& sums) {
    std::int64_t begin[3], end[3];
    for (AxisName name : {kDepth, kHeight, kWidth}) {
      const AxisPlan& axis = plan_.axes[name];
      const bool last = unit.piece[name] == axis.pieces() - 1;
      begin[name] = std::min(axis.begin(unit.piece[name]), axis.input);
      end[name] = last ? axis.input : std::min(axis.end(unit.piece[name]), axis.input);
    }
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
  double shift_ = 0.0;  // what s has been lowered by
};

void general_units(const Plan& plan, std::int64_t begin, std::int64_t end) {
  General general(plan);
  for (std::int64_t i = begin; i < end; ++i) general.run(unit_at(plan, i), plan.partial[i]);
}
