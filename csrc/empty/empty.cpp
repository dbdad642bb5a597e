// New tensors on CUDA without torch's dispatcher, by torch's C++ interface, which is compatible
// within one minor version.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/EmptyTensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>

// With the signature that csrc/ops/cuda_empty.cpp expects. The caller owns the tensor.
extern "C" __attribute__((visibility("default"))) void* syncfree_empty_on_cuda(
    const std::int64_t* sizes, std::size_t rank, std::int32_t dtype, std::int32_t device) {
  return new at::Tensor(at::detail::empty_cuda(
      {sizes, rank}, static_cast<c10::ScalarType>(dtype),
      c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), std::nullopt));
}
