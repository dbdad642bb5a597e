// The gradient for one unit: a box of pixels of one plane.

class Backward {
 public:
  explicit Backward(const BackwardPlan& plan)
      : plan_(plan),
        problem_(*plan.problem),
        images_(problem_.forward),
        depth_(plan.axes[kDepth]),
        height_(plan.axes[kHeight]),
        width_(plan.axes[kWidth]),
        clamp_(make_clamp<double>(images_.range, images_.preds.dtype, images_.target.dtype)),
        preds_row_(width_.size),
        target_row_(width_.size),
        pooled_row_(width_.size) {}

  void run(const Unit& unit) {
    plane_ = unit.plane;
    const std::int64_t image = plane_ / images_.preds.size[1];
    value_weight_ = upstream(problem_.grad_value, problem_.constant_grad_value()).of(image) *
                    plan_.shares.value;
    contrast_weight_ = upstream(problem_.grad_contrast).of(image) * plan_.shares.contrast;
    squared_weight_ = 2.0 * upstream(problem_.grad_squared_error).of(image);
    absolute_weight_ =
        upstream(problem_.grad_absolute_error, problem_.constant_grad_absolute_error()).of(image);
    for (AxisName axis : {kDepth, kHeight, kWidth}) {
      pixels_[axis] = plan_.axes[axis].pixels(unit.piece[axis]);
      windows_[axis] = plan_.axes[axis].windows_over(pixels_[axis]);
      covered_[axis] = plan_.axes[axis].covered_by(windows_[axis]);
    }
    pitch_ = padded(windows_[kWidth].size());
    row_ = kMoments * pitch_;
    choose_pivot();
    take_moments();
    differentiate();
    go_back();
  }

 private:
  static constexpr int kMoments = 4;  // s, d, s^2, d^2; on the way back levels, then slopes of s, d

  // Room for rows of four moments each, one moment behind the other.
  double* reserve(std::vector<double>& memory, std::int64_t rows) {
    const std::size_t wanted = static_cast<std::size_t>(rows * row_);
    if (memory.size() < wanted) memory.resize(wanted);
    return memory.data();
  }

  // Moments are taken about the pixel in the middle of the unit.
  void choose_pivot() {
    const std::int64_t z = middle(kDepth), y = middle(kHeight), x = middle(kWidth);
    const double a = pixel(images_.preds, z, y, x), b = pixel(images_.target, z, y, x);
    const double scale = plan_.constants.scale;
    s_pivot_ = finite_or_zero((a + b) * scale);
    d_pivot_ = finite_or_zero((a - b) * scale);
  }

  std::int64_t middle(AxisName axis) const { return (pixels_[axis].begin + pixels_[axis].end) / 2; }
  double pixel(const TensorView& view, std::int64_t z, std::int64_t y, std::int64_t x) const {
    return clamp_(load_as<double>(view.data, view.dtype, pixel_offset(view, plane_, z, y, x)));
  }

  // One row of both images, unclamped, from column `begin` on.
  struct Rows {
    const double* preds;
    const double* target;
  };
  Rows read_rows(std::int64_t z, std::int64_t y, std::int64_t begin, std::int64_t end) {
    return {read_row(images_.preds, pixel_offset(images_.preds, plane_, z, y, begin), end - begin,
                     preds_row_.data()),
            read_row(images_.target, pixel_offset(images_.target, plane_, z, y, begin), end - begin,
                     target_row_.data())};
  }

  void take_moments() {
    const std::int64_t slices = covered_[kDepth].size(), rows = covered_[kHeight].size();
    double* along_width = reserve(first_, slices * rows);
    for (std::int64_t z = 0; z < slices; ++z)
      for (std::int64_t y = 0; y < rows; ++y)
        filter_row(covered_[kDepth].begin + z, covered_[kHeight].begin + y,
                   along_width + (z * rows + y) * row_);
    const std::int64_t outputs = windows_[kHeight].size();
    double* along_height = reserve(second_, slices * outputs);
    for (std::int64_t z = 0; z < slices; ++z)
      for (std::int64_t y = 0; y < outputs; ++y)
        correlate<false>(along_width + (z * rows + y) * row_, row_, height_.weights.data(),
                         height_.taps, row_, along_height + (z * outputs + y) * row_);
    moments_ = &second_;
    if (depth_.is_trivial()) return;
    const std::int64_t slice = outputs * row_;
    double* along_depth = reserve(first_, windows_[kDepth].size() * outputs);
    for (std::int64_t z = 0; z < windows_[kDepth].size(); ++z)
      correlate<false>(along_height + z * slice, slice, depth_.weights.data(), depth_.taps, slice,
                       along_depth + z * slice);
    moments_ = &first_;
  }

  void filter_row(std::int64_t z, std::int64_t y, double* out) {
    const std::int64_t size = width_.size;
    const Span covered = covered_[kWidth], source = columns_behind(covered);
    const Rows rows =
        read_rows(mirror(z, depth_.size), mirror(y, height_.size), source.begin, source.end);
    const std::int64_t pitch = padded(covered.size()) + kLaneMultiple;
    pixels_row_.resize(kMoments * pitch);
    double* s = pixels_row_.data();
    double* d = s + pitch;
    double* ss = d + pitch;
    double* dd = ss + pitch;
    const double scale = plan_.constants.scale;
    const auto put = [&](std::int64_t place, std::int64_t column) {
      const double a = clamp_(rows.preds[column - source.begin]);
      const double b = clamp_(rows.target[column - source.begin]);
      const std::int64_t i = place - covered.begin;
      s[i] = (a + b) * scale - s_pivot_;
      d[i] = (a - b) * scale - d_pivot_;
    };
    const std::int64_t inside = std::clamp<std::int64_t>(0, covered.begin, covered.end);
    const std::int64_t behind = std::clamp(size, inside, covered.end);
    for (std::int64_t i = covered.begin; i < inside; ++i) put(i, mirror(i, size));
    for (std::int64_t i = inside; i < behind; ++i) put(i, i);
    for (std::int64_t i = behind; i < covered.end; ++i) put(i, mirror(i, size));
    for (std::int64_t i = 0; i < covered.size(); ++i) {
      ss[i] = s[i] * s[i];
      dd[i] = d[i] * d[i];
    }
    for (int moment = 0; moment < kMoments; ++moment)
      correlate<false>(s + moment * pitch, 1, width_.weights.data(), width_.taps, pitch_,
                       out + moment * pitch_);
  }

  // The range of columns of the image that appear at these places.
  Span columns_behind(Span places) const {
    const std::int64_t size = width_.size, last = places.end - 1;
    const auto [least, most] = std::minmax({mirror(places.begin, size), mirror(last, size)});
    return {places.begin <= 0 && last >= 0 ? 0 : least,
            places.begin < size && last >= size - 1 ? size : most + 1};
  }

  // Replaces each window's moments by its terms. Levels are relative to the pivots too: they become
  // level - slope * mean.
  void differentiate() {
    double* rows = moments_->data();
    for (std::int64_t z = windows_[kDepth].begin; z < windows_[kDepth].end; ++z)
      for (std::int64_t y = windows_[kHeight].begin; y < windows_[kHeight].end; ++y) {
        differentiate_row(z, y, rows);
        rows += row_;
      }
  }

  void differentiate_row(std::int64_t z, std::int64_t y, double* row) {
    const Span x = windows_[kWidth];
    const std::int64_t count = x.size();
    weights_.assign(pitch_, value_weight_);
    if (const TensorView& map = problem_.grad_map; map.data != nullptr)
      for (std::int64_t i = 0; i < count; ++i)
        weights_[i] +=
            load_as<double>(map.data, map.dtype, pixel_offset(map, plane_, z, y, x.begin + i));
    contrast_weights_.assign(pitch_, 0.0);
    if (contrast_weight_ != 0.0 && in_crop(depth_, z) && in_crop(height_, y))
      for (std::int64_t i = 0; i < count; ++i)
        if (in_crop(width_, x.begin + i)) contrast_weights_[i] = contrast_weight_;

    const Constants<double> constants = plan_.constants;
    for (std::int64_t i = 0; i < pitch_; i += Lanes<double>::kCount) {
      const auto s = load(row + i), d = load(row + pitch_ + i);
      const auto s_variance = load(row + 2 * pitch_ + i) - s * s;
      const auto d_variance = load(row + 3 * pitch_ + i) - d * d;
      const auto g = window_gradient(s + s_pivot_, s_variance, d + d_pivot_, d_variance, constants,
                                     load(weights_.data() + i), load(contrast_weights_.data() + i));
      store(row + i, g.s.level - g.s.slope * s);
      store(row + pitch_ + i, g.d.level - g.d.slope * d);
      store(row + 2 * pitch_ + i, g.s.slope);
      store(row + 3 * pitch_ + i, g.d.slope);
    }
  }

  static bool in_crop(const BackwardAxis& axis, std::int64_t i) {
    return i >= axis.pad && i < axis.windows - axis.pad;
  }

  void go_back() {
    const double* terms = moments_->data();
    std::vector<double>* spare = moments_ == &first_ ? &second_ : &first_;
    if (!depth_.is_trivial()) {
      const std::int64_t slice = windows_[kHeight].size() * row_;
      double* out = reserve(*spare, pixels_[kDepth].size() * windows_[kHeight].size());
      go_back_along(kDepth, terms, slice, out);
      terms = out;
      spare = moments_;
    }
    const std::int64_t rows = pixels_[kHeight].size();
    double* out = reserve(*spare, pixels_[kDepth].size() * rows);
    for (std::int64_t z = 0; z < pixels_[kDepth].size(); ++z)
      go_back_along(kHeight, terms + z * windows_[kHeight].size() * row_, row_,
                    out + z * rows * row_);
    for (std::int64_t z = 0; z < pixels_[kDepth].size(); ++z)
      for (std::int64_t y = 0; y < rows; ++y)
        finish_row(pixels_[kDepth].begin + z, pixels_[kHeight].begin + y,
                   out + (z * rows + y) * row_);
  }

  void go_back_along(AxisName name, const double* terms, std::int64_t stride, double* out) const {
    const BackwardAxisPlan& axis = plan_.axes[name];
    for (std::int64_t i = pixels_[name].begin; i < pixels_[name].end; ++i, out += stride) {
      bool first = true;
      axis.each_place(i, [&](std::int64_t place) {
        const Span over = axis.windows_at(place);
        const auto add = first ? correlate<false> : correlate<true>;
        first = false;
        add(terms + (over.begin - windows_[name].begin) * stride, stride,
            axis.turned.data() + (over.begin - (place + axis.pad - axis.taps + 1)), over.size(),
            stride, out);
      });
    }
  }

  void finish_row(std::int64_t z, std::int64_t y, const double* terms) {
    const Span places = width_.places_of(pixels_[kWidth]);
    const std::int64_t first_window = places.begin + width_.pad - width_.taps + 1;
    const std::int64_t pitch = padded(places.size());
    const std::int64_t begin = std::max(windows_[kWidth].begin, first_window);
    const std::int64_t end =
        std::min(windows_[kWidth].end, first_window + places.size() + width_.taps - 1);
    // There are no windows beyond the map: their terms are zero.
    extended_.assign(pitch + width_.taps, 0.0);
    unfolded_.resize(kMoments * pitch + kLaneMultiple);
    for (int moment = 0; moment < kMoments; ++moment) {
      std::copy_n(terms + moment * pitch_ + begin - windows_[kWidth].begin, end - begin,
                  extended_.data() + begin - first_window);
      correlate<false>(extended_.data(), 1, width_.turned.data(), width_.taps, pitch,
                       unfolded_.data() + moment * pitch);
    }
    const Span x = pixels_[kWidth];
    for (std::int64_t i = x.begin; i < x.end; ++i)
      width_.each_place(i, [&](std::int64_t place) {
        if (place == i) return;
        for (int moment = 0; moment < kMoments; ++moment) {
          double* sums = unfolded_.data() + moment * pitch - places.begin;
          sums[i] += sums[place];
        }
      });
    finish_pixels(read_rows(z, y, x.begin, x.end), unfolded_.data() + x.begin - places.begin,
                  pitch);
    write(problem_.preds, {plane_, z, y, x}, preds_gradient_);
    write(problem_.target, {plane_, z, y, x}, target_gradient_);
  }

  void finish_pixels(const Rows& rows, const double* sums, std::int64_t pitch) {
    const std::int64_t count = pixels_[kWidth].size(), whole = padded(count);
    const Clamp<double> clamp = clamp_;
    for (std::vector<double>* row : {&preds_gradient_, &target_gradient_}) row->resize(whole);
    double* const by_preds = preds_gradient_.data();
    double* const by_target = target_gradient_.data();
    for (std::int64_t i = 0; i < count; ++i) by_preds[i] = clamp(rows.preds[i]);
    for (std::int64_t i = 0; i < count; ++i) by_target[i] = clamp(rows.target[i]);
    const double scale = plan_.constants.scale;
    using Vector = Lanes<double>::Vector;
    for (std::int64_t i = 0; i < whole; i += Lanes<double>::kCount) {
      const Vector a = load(by_preds + i), b = load(by_target + i), difference = a - b;
      const Vector s = load(sums + i) + load(sums + 2 * pitch + i) * ((a + b) * scale - s_pivot_);
      const Vector d =
          load(sums + pitch + i) + load(sums + 3 * pitch + i) * (difference * scale - d_pivot_);
      const Vector none = {};
      const Vector sign =
          (difference > 0 ? none + 1.0 : none) - (difference < 0 ? none + 1.0 : none);
      const Vector error = squared_weight_ * difference + absolute_weight_ * sign;
      store(by_preds + i, (s + d) * scale + error);
      store(by_target + i, (s - d) * scale - error);
    }
    if (!clamp.enabled) return;
    for (std::int64_t i = 0; i < count; ++i) {
      if (!clamp.passes(rows.preds[i])) by_preds[i] = 0.0;
      if (!clamp.passes(rows.target[i])) by_target[i] = 0.0;
    }
  }

  void write(const Gradient& gradient, const PixelRow& pixels, std::vector<double>& row) {
    if (gradient.data == nullptr) return;
    if (gradient.pooled.data != nullptr)
      add_pooled(gradient.pooled, depth_.size, pixels, pooled_row_, row.data());
    store_gradient(gradient, pixels, row.data());
  }

  const BackwardPlan& plan_;
  const BackwardProblem& problem_;
  const Problem& images_;
  const BackwardAxisPlan& depth_;
  const BackwardAxisPlan& height_;
  const BackwardAxisPlan& width_;
  const Clamp<double> clamp_;

  std::int64_t plane_ = 0;
  Span pixels_[3] = {};
  Span windows_[3] = {};    // that cover these pixels
  Span covered_[3] = {};    // places that those windows cover
  std::int64_t pitch_ = 0;  // doubles of one moment of a row of windows
  std::int64_t row_ = 0;    // doubles of all four moments of a row
  double s_pivot_ = 0.0;
  double d_pivot_ = 0.0;
  double value_weight_ = 0.0;
  double contrast_weight_ = 0.0;
  double squared_weight_ = 0.0;
  double absolute_weight_ = 0.0;

  // The passes alternate between two buffers.
  std::vector<double> first_;
  std::vector<double> second_;
  std::vector<double>* moments_ = nullptr;
  std::vector<double> preds_row_;
  std::vector<double> target_row_;
  std::vector<double> pooled_row_;
  std::vector<double> pixels_row_;
  std::vector<double> weights_;
  std::vector<double> contrast_weights_;
  std::vector<double> extended_;
  std::vector<double> unfolded_;
  std::vector<double> preds_gradient_;
  std::vector<double> target_gradient_;
};
