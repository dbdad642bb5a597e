// Passes at::Tensor to the metrics of syncfree::core, and turns their errors into torch's.
//
// Only headers, which the program compiles against its own torch (2.11 or newer), so that torch's
// C++ binary interface need not be stable.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "syncfree/launch.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

// Only a CUDA build of torch has this file, which is generated.
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)
#include <c10/cuda/CUDAStream.h>
#define SYNCFREE_TORCH_HAS_CUDA 1
#endif

namespace syncfree {

// Throws a c10::Error with the status's message, which Python sees as a RuntimeError.
inline void check(const Status& status) {
  TORCH_CHECK(status.ok(), "syncfree: ", status.message());
}

namespace detail {

// As "[2, 3, 32, 32]". Messages are built from text only: in a program that links libstdc++
// statically beside torch's copy, printing a number to a stream ends the message, or the program.
inline std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t size : tensor.sizes()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

inline DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kByte:
      return DType::kUInt8;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kBool:
      return DType::kBool;
    default:
      TORCH_CHECK(false,
                  "syncfree: expected a tensor of float16, bfloat16, float32, float64, uint8, "
                  "int8, int16, int32, int64 or bool, but got ",
                  tensor.scalar_type(),
                  tensor.is_complex() ? ". Take at::abs, at::real or at::imag of it."
                                      : ". Convert it with `.to(at::kFloat)`.");
  }
}

inline Device device_of(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return Device::cuda(tensor.device().index());
  TORCH_CHECK(tensor.device().is_cpu(),
              "syncfree: expected a tensor on the CPU or on CUDA, but got ", tensor.device(),
              ". Move it with `.to(device)`.");
  return Device::cpu();
}

// On torch's own threads, so that at::set_num_threads applies, whether or not the program is
// compiled with OpenMP.
inline void torch_threads(std::int64_t begin, std::int64_t end, std::int64_t grain,
                          void (*body)(std::int64_t, std::int64_t, void*), void* context) {
  if (torch_parallel_for(begin, end, grain, body, context) != 0)
    throw std::runtime_error("torch's thread pool failed.");
}

// A new tensor for a result, on the device of `like` and without a gradient.
inline at::Tensor empty_like_device(at::IntArrayRef sizes, at::ScalarType dtype,
                                    const at::Tensor& like) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(like.device()));
}

// The current stream of the tensor's device, or torch's threads.
inline Launch launch_on([[maybe_unused]] const at::Tensor& tensor) {
  Launch launch;
  launch.parallel_for = &torch_threads;
#if defined(SYNCFREE_TORCH_HAS_CUDA)
  if (tensor.is_cuda())
    launch.stream = c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
#endif
  return launch;
}

// Runs `call(launch)`. Its scratch memory is the library's own, unless that is impossible (under
// graph capture) or unwanted (memory of the images' size is better taken from torch's allocator).
template <class Call>
void run_on(const at::Tensor& tensor, bool scratch_of_torch, const Call& call) {
  Launch launch = launch_on(tensor);
  if (!scratch_of_torch) {
    const Status status = call(launch);
    if (status.code() != StatusCode::kNeedsScratch) return check(status);
  }
  std::size_t bytes = 0;
  launch.scratch_needed = &bytes;
  check(call(launch));
  launch.scratch_needed = nullptr;
  const at::Tensor scratch =
      empty_like_device({static_cast<std::int64_t>(bytes)}, at::kByte, tensor);
  launch.scratch = scratch.data_ptr();
  launch.scratch_bytes = bytes;
  check(call(launch));
}

}  // namespace detail

// A view of what a metric reads, in any layout. The tensor must outlive the view.
inline ConstTensorView view(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "syncfree: expected a tensor, but got an undefined one.");
  TORCH_CHECK(tensor.dim() <= SYNCFREE_MAX_RANK, "syncfree: expected at most ",
              std::to_string(SYNCFREE_MAX_RANK), " dimensions, but got shape ",
              detail::shape_text(tensor), ". Flatten some of them.");
  TORCH_CHECK(!tensor.is_neg(),
              "syncfree: expected a tensor whose memory holds its values, but got "
              "a lazily negated one. Call `.resolve_neg()`.");
  return {tensor.const_data_ptr(), detail::dtype_of(tensor), tensor.sizes().data(),
          tensor.strides().data(), tensor.sizes().size(),    detail::device_of(tensor)};
}

// A view of what a metric writes.
inline TensorView result_view(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "syncfree: expected a tensor, but got an undefined one.");
  return {tensor.mutable_data_ptr(), detail::dtype_of(tensor), tensor.sizes().data(),
          tensor.strides().data(),   tensor.sizes().size(),    detail::device_of(tensor)};
}

}  // namespace syncfree
