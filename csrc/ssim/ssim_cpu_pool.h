// The images of the next scale of a pyramid.

// A part of one plane.
struct Box {
  std::int64_t begin[3];
  std::int64_t end[3];
};

// One row of `count` pooled pixels: means of pairs of neighboring columns in two rows, or in four
// rows of two slices. `buffer` holds 2 * `count` elements, `sums` holds `count`.
template <class Real, class To>
void pool_rows(const TensorView& image, const std::int64_t (&rows)[4], int row_count,
               std::int64_t count, Real* __restrict buffer, Real* __restrict sums,
               To* __restrict pooled) {
  for (int i = 0; i < row_count; ++i) {
    const Real* row = read_row(image, rows[i], 2 * count, buffer);
    for (std::int64_t x = 0; x < count; ++x) {
      const Real pair = row[2 * x] + row[2 * x + 1];
      sums[x] = i == 0 ? pair : sums[x] + pair;
    }
  }
  const Real share = Real(0.5) / static_cast<Real>(row_count);
  for (std::int64_t x = 0; x < count; ++x) pooled[x] = static_cast<To>(share * sums[x]);
}

// Writes to `pooled` the pooled pixels of `image` whose first pixel lies in the box.
template <class Real, class To>
void pool_image(const Plan& plan, const TensorView& image, std::int64_t plane, const Box& box,
                Real* buffer, Real* sums, To* pooled) {
  const std::int64_t step[3] = {plan.axes[kDepth].input > 1 ? 2 : 1, 2, 2};
  std::int64_t begin[3], end[3], size[3];
  for (AxisName axis : {kDepth, kHeight, kWidth}) {
    const auto first_from = [&](std::int64_t i) { return (i + step[axis] - 1) / step[axis]; };
    size[axis] = plan.axes[axis].input / step[axis];
    begin[axis] = first_from(box.begin[axis]);
    end[axis] = std::min(first_from(box.end[axis]), size[axis]);
  }
  if (begin[kWidth] >= end[kWidth]) return;
  for (std::int64_t z = begin[kDepth]; z < end[kDepth]; ++z)
    for (std::int64_t y = begin[kHeight]; y < end[kHeight]; ++y) {
      std::int64_t rows[4];
      int count = 0;
      for (std::int64_t slice = 0; slice < step[kDepth]; ++slice)
        for (std::int64_t row : {2 * y, 2 * y + 1})
          rows[count++] = row_offset(image, plane, step[kDepth] * z + slice, row) +
                          2 * begin[kWidth] * image.stride[4];
      const std::int64_t at = ((plane * size[kDepth] + z) * size[kHeight] + y) * size[kWidth];
      pool_rows(image, rows, count, end[kWidth] - begin[kWidth], buffer, sums,
                pooled + at + begin[kWidth]);
    }
}

// Pools both images. The buffers hold a row of the box and one more element.
template <class Real>
void pool_images(const Plan& plan, std::int64_t plane, const Box& box, Real* buffer, Real* sums) {
  const Problem& problem = *plan.problem;
  const auto pool_as = [&]<class To>(TypeTag<To>) {
    pool_image(plan, problem.preds, plane, box, buffer, sums,
               static_cast<To*>(problem.pooled_preds));
    pool_image(plan, problem.target, plane, box, buffer, sums,
               static_cast<To*>(problem.pooled_target));
  };
  problem.preds.dtype == DType::kFloat64 ? pool_as(TypeTag<double>{}) : pool_as(TypeTag<float>{});
}
