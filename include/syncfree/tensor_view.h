// A view of a tensor that someone else owns: pointer, element type, sizes, strides and device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "syncfree/c_api.h"

namespace syncfree {

enum class DType : std::int32_t {
  kFloat32 = SYNCFREE_FLOAT32,
  kFloat64 = SYNCFREE_FLOAT64,
  kFloat16 = SYNCFREE_FLOAT16,
  kBFloat16 = SYNCFREE_BFLOAT16,
  kUInt8 = SYNCFREE_UINT8,
  kInt8 = SYNCFREE_INT8,
  kInt16 = SYNCFREE_INT16,
  kInt32 = SYNCFREE_INT32,
  kInt64 = SYNCFREE_INT64,
  kBool = SYNCFREE_BOOL,
};

struct Device {
  enum class Type : std::int32_t { kCpu = SYNCFREE_CPU, kCuda = SYNCFREE_CUDA };

  Type type = Type::kCpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Type::kCuda, index}; }
};

namespace detail {

template <class>
inline constexpr bool always_false = false;

}  // namespace detail

// The DType of a C++ type. float16 and bfloat16 have no C++ type here: pass their DType.
template <class T>
constexpr DType dtype_of() {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<Plain, double>)
    return DType::kFloat64;
  else if constexpr (std::is_same_v<Plain, bool>)
    return DType::kBool;
  else if constexpr (std::is_integral_v<Plain> && sizeof(Plain) == 1)
    return std::is_signed_v<Plain> ? DType::kInt8 : DType::kUInt8;
  else if constexpr (std::is_integral_v<Plain> && std::is_signed_v<Plain> && sizeof(Plain) == 2)
    return DType::kInt16;
  else if constexpr (std::is_integral_v<Plain> && std::is_signed_v<Plain> && sizeof(Plain) == 4)
    return DType::kInt32;
  else if constexpr (std::is_integral_v<Plain> && std::is_signed_v<Plain> && sizeof(Plain) == 8)
    return DType::kInt64;
  else
    static_assert(detail::always_false<T>,
                  "no such element type; float16 and bfloat16 are named: view(pointer, "
                  "DType::kFloat16, sizes, device)");
}

// A tensor that a metric reads. Made by `view`; the memory is neither owned nor kept alive, and on
// CUDA it must live until the work that was queued with it is done.
class ConstTensorView {
 public:
  // Strides count elements; null stands for dense memory in row-major order.
  ConstTensorView(const void* data, DType dtype, const std::int64_t* sizes,
                  const std::int64_t* strides, std::size_t rank, Device device)
      : ConstTensorView(data, dtype, rank, device) {
    std::uint64_t dense = 1;  // may wrap: the call refuses such sizes
    for (std::size_t i = rank <= SYNCFREE_MAX_RANK ? rank : 0; i-- > 0;) {
      tensor_.size[i] = sizes[i];
      tensor_.stride[i] = strides != nullptr ? strides[i] : static_cast<std::int64_t>(dense);
      dense *= static_cast<std::uint64_t>(sizes[i] > 0 ? sizes[i] : 1);
    }
  }

  // Null for a default view.
  const syncfree_tensor* get() const { return exists_ ? &tensor_ : nullptr; }

 protected:
  ConstTensorView() : exists_(false) {}

  // Without sizes. The call that gets the view refuses more dimensions than fit.
  ConstTensorView(const void* data, DType dtype, std::size_t rank, Device device) {
    tensor_.data = const_cast<void*>(data);
    tensor_.rank = static_cast<std::int32_t>(rank <= SYNCFREE_MAX_RANK ? rank : kTooManyDims);
    tensor_.dtype = static_cast<std::int32_t>(dtype);
    tensor_.device_type = static_cast<std::int32_t>(device.type);
    tensor_.device_index = device.index;
  }

  static constexpr std::size_t kTooManyDims = SYNCFREE_MAX_RANK + 1;

  syncfree_tensor tensor_{};

 private:
  bool exists_ = true;
};

// A tensor that a metric writes.
class TensorView : public ConstTensorView {
 public:
  // No tensor: a result that is not wanted.
  TensorView() = default;

  TensorView(void* data, DType dtype, const std::int64_t* sizes, const std::int64_t* strides,
             std::size_t rank, Device device)
      : ConstTensorView(data, dtype, sizes, strides, rank, device) {}
};

using Sizes = std::initializer_list<std::int64_t>;

// Dense memory in row-major order.
inline TensorView view(void* data, DType dtype, Sizes sizes, Device device = Device::cpu()) {
  return {data, dtype, sizes.begin(), nullptr, sizes.size(), device};
}
inline ConstTensorView view(const void* data, DType dtype, Sizes sizes,
                            Device device = Device::cpu()) {
  return {data, dtype, sizes.begin(), nullptr, sizes.size(), device};
}
template <class T>
auto view(T* data, Sizes sizes, Device device = Device::cpu()) {
  return view(data, dtype_of<T>(), sizes, device);
}

// Any layout; there is one stride for each size, counted in elements.
inline ConstTensorView strided_view(const void* data, DType dtype, Sizes sizes, Sizes strides,
                                    Device device = Device::cpu()) {
  const bool match = sizes.size() == strides.size();
  return {
      data,  dtype, sizes.begin(), strides.begin(), match ? sizes.size() : SYNCFREE_MAX_RANK + 1,
      device};
}
template <class T>
ConstTensorView strided_view(const T* data, Sizes sizes, Sizes strides,
                             Device device = Device::cpu()) {
  return strided_view(data, dtype_of<T>(), sizes, strides, device);
}

}  // namespace syncfree
