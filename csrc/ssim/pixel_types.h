// Pixel types for which the kernels that compute in float32 are compiled.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace syncfree::ssim {

// Calls `f(TypeTag<T>{})` with the pixel type T that `dtype` names.
template <class F>
decltype(auto) dispatch_pixels(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat16:
      return f(TypeTag<Half>{});
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>{});
    case DType::kUInt8:
      return f(TypeTag<std::uint8_t>{});
    default:
      return f(TypeTag<float>{});
  }
}

}  // namespace syncfree::ssim
