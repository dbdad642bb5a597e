// Fresh tensors on CUDA past torch's dispatcher: torch's C++ interface, of one minor version.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/EmptyTensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>

// As csrc/ops/cuda_empty.h wants it.
extern "C" __attribute__((visibility("default"))) void* syncfree_empty_on_cuda(
    const std::int64_t* sizes, std::size_t rank, std::int32_t dtype, std::int32_t device) {
  return new at::Tensor(at::detail::empty_cuda(
      {sizes, rank}, static_cast<c10::ScalarType>(dtype),
      c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), std::nullopt));
}
