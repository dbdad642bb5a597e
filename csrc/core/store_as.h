// Stores a double in a tensor of any floating type, rounded once.
#pragma once

#include <cmath>

#include "core/dtype.h"

namespace syncfree {
namespace detail {

// Rounds to odd: truncates, and sets the last bit if that lost anything. The result stays on x's
// side of every midpoint between narrower numbers, so that rounding it once more gives what
// rounding x itself would.
inline float double_to_odd_float(double x) {
  const float nearest = static_cast<float>(x);
  if (nearest == x || x != x) return nearest;
  std::uint32_t bits = bit_cast<std::uint32_t>(nearest);
  if (std::fabs(nearest) > std::fabs(x)) --bits;
  return bit_cast<float>(bits | 1u);
}

// Round to nearest even; NaN stays NaN.
inline std::uint16_t float_to_bfloat16_bits(float x) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  if (x != x) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline std::uint16_t float_to_half_bits(float x) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to or beyond 65520
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the last place of a half with the last place of the float.
    const float shifted = bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<std::uint16_t>(bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

}  // namespace detail

SYNCFREE_HD void store_as(void* data, DType dtype, std::int64_t index, double x) {
  switch (dtype) {
    case DType::kFloat64:
      static_cast<double*>(data)[index] = x;
      break;
#if defined(__CUDA_ARCH__)
    case DType::kFloat16:
      static_cast<__half*>(data)[index] = __double2half(x);
      break;
    case DType::kBFloat16:
      static_cast<__nv_bfloat16*>(data)[index] = __double2bfloat16(x);
      break;
#else
    case DType::kFloat16:
      static_cast<Half*>(data)[index] = {
          detail::float_to_half_bits(detail::double_to_odd_float(x))};
      break;
    case DType::kBFloat16:
      static_cast<BFloat16*>(data)[index] = {
          detail::float_to_bfloat16_bits(detail::double_to_odd_float(x))};
      break;
#endif
    default:
      static_cast<float*>(data)[index] = static_cast<float>(x);
  }
}

}  // namespace syncfree
