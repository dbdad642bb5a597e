// Rows of images in the type of the computation.

// `count` elements of a row that starts `offset` elements into the image: a pointer into the image
// if they are contiguous and of type Real, else `buffer`, into which they are converted.
template <class Real>
const Real* read_row(const TensorView& image, std::int64_t offset, std::int64_t count,
                     Real* __restrict buffer) {
  const std::int64_t stride = image.stride[4];
  return dispatch_dtype(image.dtype, [=, &image](auto tag) -> const Real* {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(image.data) + offset;
    if (stride == 1) {
      if constexpr (std::is_same_v<T, Real>) return from;
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = to<Real>(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = to<Real>(from[i * stride]);
    }
    return buffer;
  });
}

// s = scale * (a + b) - shift and d = scale * (a - b) of one row of both images, for the columns
// [first, first + count). Columns outside the image are mirrored.
template <class Real>
void read_sum_and_difference(const Plan& plan, std::int64_t preds_row, std::int64_t target_row,
                             std::int64_t first, std::int64_t count, Real shift, Real* preds_buffer,
                             Real* target_buffer, Real* __restrict s, Real* __restrict d) {
  const TensorView& preds = plan.problem->preds;
  const TensorView& target = plan.problem->target;
  const std::int64_t size = plan.axes[kWidth].input;
  const std::int64_t last = first + count - 1;
  // [inside, behind) are the wanted columns that lie in the image. [begin, end) are the columns to
  // read: those, and the ones that mirroring takes from further inside.
  const std::int64_t inside = std::clamp<std::int64_t>(0, first, last + 1);
  const std::int64_t behind = std::clamp(size, inside, last + 1);
  const auto [least, most] = std::minmax({mirror(first, size), mirror(last, size)});
  const std::int64_t begin = first <= 0 && last >= 0 ? 0 : least;
  const std::int64_t end = first < size && last >= size - 1 ? size : most + 1;
  const Real* a = read_row(preds, preds_row + begin * preds.stride[4], end - begin, preds_buffer);
  const Real* b =
      read_row(target, target_row + begin * target.stride[4], end - begin, target_buffer);

  const Real scale = static_cast<Real>(plan.constants.scale);
  const auto combine = [&](auto value_of) {
    const auto put = [&](std::int64_t column, std::int64_t source) {
      const Real left = value_of(a[source - begin]), right = value_of(b[source - begin]);
      s[column - first] = (left + right) * scale - shift;
      d[column - first] = (left - right) * scale;
    };
    for (std::int64_t i = inside; i < behind; ++i) put(i, i);
    for (std::int64_t i = first; i < inside; ++i) put(i, mirror(i, size));
    for (std::int64_t i = behind; i <= last; ++i) put(i, mirror(i, size));
  };
  const auto clamp = make_clamp<Real>(plan.problem->range, preds.dtype, target.dtype);
  if (clamp.enabled)
    combine(clamp);
  else
    combine([](Real v) { return v; });
}

// Stores results of one row into the map, which is contiguous.
template <class Real>
void store_row(const Problem& problem, std::int64_t at, const Real* from, std::int64_t count) {
  if constexpr (std::is_same_v<Real, float>) {
    if (problem.result_dtype == DType::kFloat32) {
      std::copy_n(from, count, static_cast<float*>(problem.map) + at);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i)
    store_as(problem.map, problem.result_dtype, at + i, static_cast<double>(from[i]));
}
