// csrc/empty beside a torch without CUDA: with what it takes from torch's CUDA library, and in the
// place of csrc/ops/cuda_empty.cpp somebody who asks for a tensor.
#include <ATen/EmptyTensor.h>

#include <memory>

#include "empty/empty.cpp"

namespace {

using Empty = void*(const std::int64_t* sizes, std::size_t rank, std::int32_t dtype,
                    std::int32_t device);

Empty* provided = nullptr;
std::optional<c10::Device> asked;

}  // namespace

namespace at::detail {

TensorBase empty_cuda(IntArrayRef sizes, ScalarType dtype, std::optional<Device> device,
                      std::optional<c10::MemoryFormat> format) {
  asked = device;
  return empty_cpu(sizes, dtype, /*pin_memory=*/false, format);
}

}  // namespace at::detail

extern "C" {

void syncfree_provide_empty_on_cuda(Empty* function) {
  provided = function;
}

// Whether a float16 tensor of 3 x 4 is made, for the fourth GPU.
bool makes_a_tensor() {
  const std::int64_t sizes[] = {3, 4};
  const auto dtype = static_cast<std::int32_t>(at::kHalf);
  const std::unique_ptr<at::Tensor> made(static_cast<at::Tensor*>(provided(sizes, 2, dtype, 3)));
  return made->sizes() == c10::IntArrayRef(sizes) && made->is_contiguous() &&
         made->scalar_type() == at::kHalf && asked == c10::Device(c10::kCUDA, 3);
}
}
