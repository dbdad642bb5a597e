// Checks shared by all functions of the C interface, and conversions to the kernels' types.
//
// An operand is a tensor that is only read, a result one that is written.
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

// Refuses null, which is what a default C++ view becomes.
const syncfree_tensor& required_view(const char* name, const syncfree_tensor* tensor);

// The checked view of an operand.
TensorView operand(const char* name, const syncfree_tensor* tensor);

// Refuses operands of different shapes.
void check_same_shape(const TensorView& preds, const TensorView& target);

// Refuses a tensor that is not on the device of `on`.
void check_same_device(const char* name, const syncfree_tensor& tensor, const syncfree_tensor& on);

// Memory of a result.
struct Result {
  void* data;
  DType dtype;
};

// Checks that a result is on the device of `on`, dense, of a floating dtype and of these sizes.
Result result(const char* name, const syncfree_tensor* tensor, const syncfree_tensor& on,
              const std::int64_t* sizes, int rank);

// Refuses a value outside an enumeration whose members are 0 to `last`.
void check_choice(const char* name, std::int32_t choice, std::int32_t last);

Reduction reduction_of(std::int32_t reduction);

DataRange range_of(const syncfree_range& range, bool may_come_from_data);

}  // namespace syncfree::api
