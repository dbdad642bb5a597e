// cub::WarpReduce with no more than its contract: only lane 0 gets the result.
#pragma once

#include "device_language.h"

namespace cub {

template <class T>
class WarpReduce {
 public:
  struct TempStorage {};

  explicit WarpReduce(TempStorage&) {}

  T Sum(T value, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const unsigned lane = cuda_on_cpu::lane_index();
    for (unsigned by = 1; by < 32; by *= 2) {
      const T other = __shfl_down_sync(~0u, value, by, site);
      if (lane + by < 32) value = value + other;
    }
    if (lane != 0) std::memset(&value, 0xEE, sizeof(value));
    return value;
  }
};

}  // namespace cub
