// Division of indices.
#pragma once

#include <cstdint>

namespace syncfree {

// Of numbers not negative. The 32-bit division is several times cheaper than the 64-bit one.
__device__ inline std::int64_t divide(std::int64_t a, std::int64_t b) {
  return (a | b) >> 32 == 0 ? static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b) : a / b;
}

}  // namespace syncfree
