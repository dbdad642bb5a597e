// The clamp that a data range given as an interval asks for.
#pragma once

#include "core/data_range.h"
#include "core/dtype.h"

namespace syncfree {

// A comparison with NaN is false, so NaN passes as it does in torch.clamp.
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

}  // namespace syncfree
