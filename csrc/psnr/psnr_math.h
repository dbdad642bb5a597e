// Arithmetic of PSNR that CPU and CUDA share.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/data_range.h"
#include "core/dtype.h"

namespace syncfree::psnr {

// 10 / ln(base) * (2 ln(range) - ln(mse)), with what does not depend on the images folded once.
struct Scale {
  double log_range_squared;
  double per_neper;
};

inline Scale make_scale(double data_range, double base) {
  return {2.0 * std::log(data_range), 10.0 / std::log(base)};
}

// Identical images give +inf, no elements NaN.
SYNCFREE_HD double from_squared_error(double squared_error, std::int64_t count,
                                      const Scale& scale) {
  return scale.per_neper *
         (scale.log_range_squared - log(squared_error / static_cast<double>(count)));
}

// Bounds of the clamp; a comparison with NaN is false, so NaN passes as it does in torch.clamp.
template <class Acc>
struct Clamp {
  bool enabled;
  Acc low;
  Acc high;

  SYNCFREE_HD Acc operator()(Acc x) const {
    if (!enabled) return x;
    return x < low ? low : (x > high ? high : x);
  }
};

template <class Acc>
Clamp<Acc> make_clamp(const DataRange& range) {
  return {range.source == DataRange::Source::kInterval, static_cast<Acc>(range.low),
          static_cast<Acc>(range.high)};
}

// How one result's elements, in logical order, are cut into pieces that are summed apart. It
// depends on their number alone, so that the bits of a result do not depend on batch, layout or
// grid.
struct Chunks {
  std::int64_t elements;  // in one chunk
  std::int64_t count;
};

inline Chunks make_chunks(std::int64_t elements, std::int64_t quantum, std::int64_t most) {
  const std::int64_t wanted = (elements + most - 1) / most;
  const std::int64_t size =
      wanted <= quantum ? quantum : (wanted + quantum - 1) / quantum * quantum;
  return {size, elements == 0 ? 1 : (elements + size - 1) / size};
}

}  // namespace syncfree::psnr
