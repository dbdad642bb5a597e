// Element types that kernels read, and the step from a run-time tag to a compile-time type.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SYNCFREE_HD __host__ __device__ __forceinline__
#else
#define SYNCFREE_HD inline
#endif

namespace syncfree {

enum class DType : std::int8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

// Storage only: arithmetic happens in float or double after `to`.
struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {

template <class To, class From>
SYNCFREE_HD To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// Branch-free so that compilers vectorize it. Normal numbers: shift into place and rebias by a
// multiplication; subnormals: let a float subtraction normalize them.
inline float half_bits_to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  const std::uint32_t sign = word & 0x80000000u;
  const std::uint32_t magnitude = word + word;
  const float normal = bit_cast<float>((magnitude >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = bit_cast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
  const std::uint32_t value =
      magnitude < (1u << 27) ? bit_cast<std::uint32_t>(subnormal) : bit_cast<std::uint32_t>(normal);
  return bit_cast<float>(sign | value);
}

}  // namespace detail

// Conversion to the type in which a kernel computes. Exact but for float64, int32 and int64 to
// float and for int64 to double.
template <class Acc, class T>
SYNCFREE_HD Acc to(T value) {
  return static_cast<Acc>(value);
}

template <class Acc>
SYNCFREE_HD Acc to(Half value) {
#if defined(__CUDA_ARCH__)
  return static_cast<Acc>(__half2float(__ushort_as_half(value.bits)));
#else
  return static_cast<Acc>(detail::half_bits_to_float(value.bits));
#endif
}

template <class Acc>
SYNCFREE_HD Acc to(BFloat16 value) {
  return static_cast<Acc>(detail::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16));
}

template <class T>
struct TypeTag {
  using type = T;
};

// Calls `f(TypeTag<T>{})` for the type that `dtype` names.
template <class F>
SYNCFREE_HD decltype(auto) dispatch_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(TypeTag<double>{});
    case DType::kFloat16:
      return f(TypeTag<Half>{});
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>{});
    case DType::kUInt8:
      return f(TypeTag<std::uint8_t>{});
    case DType::kInt8:
      return f(TypeTag<std::int8_t>{});
    case DType::kInt16:
      return f(TypeTag<std::int16_t>{});
    case DType::kInt32:
      return f(TypeTag<std::int32_t>{});
    case DType::kInt64:
      return f(TypeTag<std::int64_t>{});
    case DType::kBool:
      return f(TypeTag<bool>{});
    case DType::kFloat32:
    default:
      return f(TypeTag<float>{});
  }
}

// For operands of two different types: one uniform branch per load instead of a kernel for each of
// the hundred pairs of types.
template <class Acc>
SYNCFREE_HD Acc load_as(const void* data, DType dtype, std::int64_t index) {
  return dispatch_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return to<Acc>(static_cast<const T*>(data)[index]);
  });
}

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    default:
      return 1;
  }
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

}  // namespace syncfree
