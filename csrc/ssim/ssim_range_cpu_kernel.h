// Smallest and largest value of some rows of an image, built once for each instruction set through
// core/for_each_isa.h; a single NaN makes both NaN.
namespace ssim_range_cpu {
namespace {

using namespace ::syncfree::ssim;

// Used by the header below.
#include "ssim/ssim_cpu_vectors.h"

#include "ssim/ssim_cpu_rows.h"

template <class Real>
Extremes extremes_in(const TensorView& image, std::int64_t begin, std::int64_t end) {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  constexpr int kCount = Lanes<Real>::kCount;
  using Vector = typename Lanes<Real>::Vector;
  const std::int64_t width = image.size[4];
  std::vector<Real> buffer(width);
  Vector lows = Vector{} + kInfinity, highs = -lows;
  auto unordered = lows != lows;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t slice = row / image.size[3];
    const std::int64_t offset =
        row_offset(image, slice / image.size[2], slice % image.size[2], row % image.size[3]);
    const Real* values = read_row(image, offset, width, buffer.data());
    for (std::int64_t x = 0; x < width; x += kCount) {
      Vector v = Vector{} + values[x];
      if (x + kCount <= width)
        v = load(values + x);
      else
        for (int i = 1; x + i < width; ++i) v[i] = values[x + i];
      lows = v < lows ? v : lows;
      highs = v > highs ? v : highs;
      unordered |= v != v;
    }
  }
  Extremes result = {kInfinity, -kInfinity};
  for (int i = 0; i < kCount; ++i) {
    if (unordered[i])
      return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
    result.low = std::min<double>(result.low, lows[i]);
    result.high = std::max<double>(result.high, highs[i]);
  }
  return result;
}

}  // namespace

Extremes extremes_of_rows(const TensorView& image, bool in_double, std::int64_t begin,
                          std::int64_t end) {
  return in_double ? extremes_in<double>(image, begin, end) : extremes_in<float>(image, begin, end);
}

}  // namespace ssim_range_cpu
