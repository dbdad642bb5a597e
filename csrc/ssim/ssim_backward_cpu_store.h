// Stores rows of gradients, to which it adds those of pooled images.

inline std::int64_t pixel_offset(const TensorView& view, std::int64_t plane, std::int64_t z,
                                 std::int64_t y, std::int64_t x) {
  return row_offset(view, plane, z, y) + x * view.stride[4];
}

struct PixelRow {
  std::int64_t plane;
  std::int64_t z;
  std::int64_t y;
  Span x;
};

// Adds each pixel's share of the gradient of the half-size image. That image was pooled before any
// clamping, so a clamp does not stop this share. A last odd slice, row or column has no share.
// `buffer` has room for a row of the half-size image.
inline void add_pooled(const TensorView& pooled, std::int64_t depth, const PixelRow& pixels,
                       std::vector<double>& buffer, double* row) {
  const bool volume = depth > 1;
  const std::int64_t z = volume ? pixels.z / 2 : pixels.z, y = pixels.y / 2;
  if (z >= pooled.size[2] || y >= pooled.size[3]) return;
  const auto [begin, last] = pixels.x;
  const std::int64_t end = std::min(last, 2 * pooled.size[4]);
  const std::int64_t first = begin / 2, count = (end + 1) / 2 - first;
  const double* from =
      read_row(pooled, pixel_offset(pooled, pixels.plane, z, y, first), count, buffer.data());
  const double share = volume ? 0.125 : 0.25;
  for (std::int64_t x = begin; x < end; ++x) row[x - begin] += share * from[x / 2 - first];
}

inline void store_gradient(const Gradient& gradient, const PixelRow& pixels, const double* row) {
  const TensorView& view = gradient.layout;
  const std::int64_t first = pixel_offset(view, pixels.plane, pixels.z, pixels.y, pixels.x.begin);
  const std::int64_t count = pixels.x.size(), stride = view.stride[4];
  if (view.dtype == DType::kFloat32) {
    float* out = static_cast<float*>(gradient.data) + first;
    // Compilers vectorize the loop if its stride is a constant.
    if (stride == 1)
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(row[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) out[i * stride] = static_cast<float>(row[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    store_as(gradient.data, view.dtype, first + i * stride, row[i]);
}
