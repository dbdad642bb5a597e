// Arithmetic of PSNR that CPU and CUDA share.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/add_to_state.h"
#include "core/clamp.h"
#include "core/dtype.h"
#include "psnr/psnr.h"

namespace syncfree::psnr {

// 10 / ln(base) * (2 ln(range) - ln(mse)), with what does not depend on the images computed once.
struct Scale {
  double log_range_squared;
  double per_neper;
};

inline Scale make_scale(double data_range, double base) {
  return {2.0 * std::log(data_range), 10.0 / std::log(base)};
}

SYNCFREE_HD double log_range_squared(const void* data_range, DType dtype) {
  return 2.0 * log(load_as<double>(data_range, dtype, 0));
}

// Identical images give +inf, no elements NaN.
SYNCFREE_HD double from_squared_error(double squared_error, double count, const Scale& scale) {
  return scale.per_neper * (scale.log_range_squared - log(squared_error / count));
}

// Uses the range in memory, where states have one.
SYNCFREE_HD Scale scale_of(Scale scale, const States& states) {
  if (states.data_range != nullptr)
    scale.log_range_squared = log_range_squared(states.data_range, states.data_range_dtype);
  return scale;
}

// Hands the squared error of one result to the states, if there are any.
SYNCFREE_HD void hand_over(std::int64_t result, double squared_error, std::int64_t count,
                           const States& states) {
  if (states.squared_error == nullptr) return;
  if (states.total != nullptr) {
    add_to_state(states.squared_error, states.squared_error_dtype, squared_error);
    add_to_state(states.total, states.total_dtype, count);
  } else {
    store_as(states.squared_error, states.squared_error_dtype, result, squared_error);
  }
}

SYNCFREE_HD double value_of(std::int64_t result, double squared_error, std::int64_t count,
                            const Scale& scale, const States& states) {
  hand_over(result, squared_error, count, states);
  return from_squared_error(squared_error, static_cast<double>(count), scale_of(scale, states));
}

// How one result's elements in logical order, or the results themselves, are cut into chunks that
// are summed apart. It depends on their number alone, so that the bits of a result do not depend on
// batch, layout or grid.
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
