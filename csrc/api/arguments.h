// Checks that all functions of the C interface have in common, and the step to the kernels' types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "api/failure.h"
#include "core/data_range.h"
#include "core/reduction.h"
#include "core/tensor_view.h"

namespace syncfree::api {

// Refuses a null pointer.
template <class T>
const T& required(const char* name, const T* argument) {
  if (argument == nullptr)
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `", name, "`, but got a null pointer.");
  return *argument;
}

// "[2, 3, 16, 16]"
std::string shape_text(const TensorView& view);
const char* dtype_text(DType dtype);

// Refuses null, which in C++ a view of nothing is.
const syncfree_tensor& required_view(const char* name, const syncfree_tensor* tensor);

// Of a tensor that is read.
TensorView operand(const char* name, const syncfree_tensor* tensor);

// Refuses operands of different sizes.
void check_same_shape(const TensorView& preds, const TensorView& target);

// Refuses a tensor that is not where `on` is.
void check_same_device(const char* name, const syncfree_tensor& tensor, const syncfree_tensor& on);

// Memory of a result.
struct Result {
  void* data;
  DType dtype;
};

// Checks that a result is on the device of `on`, of a floating dtype, dense, and of those sizes.
Result result(const char* name, const syncfree_tensor* tensor, const syncfree_tensor& on,
              const std::int64_t* sizes, int rank);

// Refuses what is no member of an enumeration whose members are 0 to `last`.
void check_choice(const char* name, std::int32_t choice, std::int32_t last);

Reduction reduction_of(std::int32_t reduction);

DataRange range_of(const syncfree_range& range, bool may_come_from_data);

}  // namespace syncfree::api
