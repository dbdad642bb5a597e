// Everything that the ops take from torch's stable ABI, under short names, and what that ABI lacks.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tensor_view.h"

namespace syncfree::ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// torch's bindings turn std::invalid_argument into ValueError and std::runtime_error into
// RuntimeError.
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

// Call it inside an `if`: building the message takes longer than the rest of a call.
template <class... Parts>
[[noreturn]] void fail_value(const Parts&... parts) {
  fail<std::invalid_argument>(parts...);
}

template <class... Parts>
[[noreturn]] void fail_runtime(const Parts&... parts) {
  fail<std::runtime_error>(parts...);
}

struct Device {
  std::int32_t type = 0;
  std::int32_t index = 0;
  bool operator==(const Device&) const = default;
};

Device device_of(const Tensor& tensor);

// Throws for a dtype that no kernel reads, with the argument's name if it is given.
DType dtype_of(const Tensor& tensor, const char* name = nullptr);
ScalarType scalar_type_of(DType dtype);

// As Python prints it: "float32".
std::string dtype_text(const Tensor& tensor);
// "[2, 3, 16, 16]"
std::string shape_text(const Tensor& tensor);

// Throw TorchMetrics' error if the shapes differ, and a RuntimeError if the devices differ:
// a kernel must never be handed memory of another device.
void check_same_shape(const Tensor& preds, const Tensor& target);
void check_same_device(const Tensor& a, const Tensor& b, const char* a_name = "preds",
                       const char* b_name = "target");

// Throws for the first of the two whose dtype no kernel reads.
void check_dtypes(const Tensor& a, const Tensor& b, const char* a_name = "preds",
                  const char* b_name = "target");

// A view for tensors of up to kMaxRank dimensions.
TensorView view_of(const Tensor& tensor);

// A new, contiguous, uninitialized tensor, of at most kMaxRank dimensions.
Tensor empty_by_stable_abi(std::span<const std::int64_t> sizes, ScalarType dtype,
                           const Device& device);

// The same on the device of `like`, by the shortest path there is.
Tensor empty_like_device(std::span<const std::int64_t> sizes, DType dtype, const Tensor& like);

}  // namespace syncfree::ops
