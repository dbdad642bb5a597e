// Where an element lies in two views of the same sizes.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/tensor_view.h"

namespace syncfree {

struct PairOffsets {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

SYNCFREE_HD PairOffsets offsets_of(const TensorView& first, const TensorView& second,
                                   std::int64_t index) {
  PairOffsets offsets;
  for (int d = first.rank - 1; d >= 0; --d) {
    const std::int64_t quotient = d == 0 ? 0 : divide(index, first.size[d]);
    const std::int64_t coordinate = index - quotient * first.size[d];
    offsets.first += coordinate * first.stride[d];
    offsets.second += coordinate * second.stride[d];
    index = quotient;
  }
  return offsets;
}

}  // namespace syncfree
