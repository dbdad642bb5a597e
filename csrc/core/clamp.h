// The clamp for a data range that is given as an interval.
#pragma once

#include <algorithm>

#include "core/data_range.h"
#include "core/dtype.h"
#include "core/store_as.h"

namespace syncfree {

// A comparison with NaN is false, so NaN passes as it does in torch.clamp.
template <class Acc>
struct Clamp {
  bool enabled;
  Acc low;
  Acc high;
  // The bounds rounded to the images' types; where these differ, the wider pair.
  Acc least;
  Acc most;

  SYNCFREE_HD Acc operator()(Acc x) const {
    if (!enabled) return x;
    return x < low ? low : (x > high ? high : x);
  }

  // Whether the gradient passes, as in torch.clamp: not where the clamp changed the value, and not
  // for NaN. Pixels clamped before lie on the bounds rounded to their type, and count as unchanged.
  SYNCFREE_HD bool passes(Acc x) const { return !enabled || (x >= least && x <= most); }
};

namespace detail {

// For integer tensors the bounds are float32, as in torch.
inline double rounded_to(DType dtype, double x) {
  if (!is_floating(dtype)) dtype = DType::kFloat32;
  alignas(double) unsigned char memory[sizeof(double)];
  store_as(memory, dtype, 0, x);
  return load_as<double>(memory, dtype, 0);
}

}  // namespace detail

template <class Acc>
Clamp<Acc> make_clamp(const DataRange& range, DType preds, DType target) {
  const auto of_both = [&](double x) {
    return std::minmax({detail::rounded_to(preds, x), detail::rounded_to(target, x)});
  };
  return {range.source == DataRange::Source::kInterval, static_cast<Acc>(range.low),
          static_cast<Acc>(range.high), static_cast<Acc>(of_both(range.low).first),
          static_cast<Acc>(of_both(range.high).second)};
}

}  // namespace syncfree
