// Every view is copied field by field after its checks, so that kernels see only checked data.
#include "api/arguments.h"

#include <algorithm>
#include <cmath>

namespace syncfree::api {
namespace {

constexpr const char* kDtypeNames[] = {"float32", "float64", "float16", "bfloat16", "uint8",
                                       "int8",    "int16",   "int32",   "int64",    "bool"};

static_assert(static_cast<int>(DType::kBFloat16) == SYNCFREE_BFLOAT16 &&
              static_cast<int>(DType::kUInt8) == SYNCFREE_UINT8 &&
              static_cast<int>(DType::kBool) == SYNCFREE_BOOL);
static_assert(kMaxRank == SYNCFREE_MAX_RANK);

TensorView checked(const char* name, const syncfree_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    fail(SYNCFREE_WRONG_SHAPE, "Expected `", name, "` to have at most ", kMaxRank,
         " dimensions and a stride for each, but it has not. Merge some of them first.");
  if (tensor.dtype < 0 || tensor.dtype > SYNCFREE_BOOL)
    fail(SYNCFREE_WRONG_DTYPE, "Expected `", name, "` to have a dtype of syncfree_dtype, but got ",
         tensor.dtype, ".");
  if (tensor.device_type != SYNCFREE_CPU && tensor.device_type != SYNCFREE_CUDA)
    fail(SYNCFREE_WRONG_DEVICE, "Expected `", name, "` on the CPU or on CUDA, but got device type ",
         tensor.device_type, ".");
  TensorView view;
  view.data = tensor.data;
  view.dtype = static_cast<DType>(tensor.dtype);
  view.rank = tensor.rank;
  std::copy_n(tensor.size, tensor.rank, view.size);
  std::copy_n(tensor.stride, tensor.rank, view.stride);
  if (std::any_of(view.size, view.size + view.rank, [](auto size) { return size < 0; }))
    fail(SYNCFREE_WRONG_SHAPE, "Expected `", name, "` to have no negative size, but got ",
         shape_text(view), ".");
  std::int64_t product = 1;  // a size of 0 counts as 1: no partial product may overflow either
  for (int d = 0; d < view.rank; ++d)
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(view.size[d], 1), &product))
      fail(SYNCFREE_WRONG_SHAPE, "Expected `", name,
           "` to have sizes whose product, without zeros, is less than 2^63, but got ",
           shape_text(view), ".");
  if (view.data == nullptr && view.numel() > 0)
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `", name, "` of shape ", shape_text(view),
         " to have memory, but its pointer is null.");
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::size_t>(size_of(view.dtype)))
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected the memory of `", name, "` to be aligned for ",
         kDtypeNames[tensor.dtype], ", but it is at ", view.data, ".");
  return view;
}

bool is_dense(const TensorView& view) {
  std::int64_t dense = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    if (view.size[d] != 1 && view.stride[d] != dense) return false;
    dense *= std::max<std::int64_t>(view.size[d], 1);  // a size of 0 counts as 1, as in torch
  }
  return true;
}

}  // namespace

const char* dtype_text(DType dtype) {
  return kDtypeNames[static_cast<int>(dtype)];
}

std::string shape_text(const TensorView& view) {
  std::string text = "[";
  for (int d = 0; d < view.rank; ++d) text += (d == 0 ? "" : ", ") + std::to_string(view.size[d]);
  return text + ']';
}

const syncfree_tensor& required_view(const char* name, const syncfree_tensor* tensor) {
  if (tensor == nullptr) fail(SYNCFREE_INVALID_ARGUMENT, "Expected `", name, "`, but got no view.");
  return *tensor;
}

TensorView operand(const char* name, const syncfree_tensor* tensor) {
  return checked(name, required_view(name, tensor));
}

void check_same_shape(const TensorView& preds, const TensorView& target) {
  if (!std::equal(preds.size, preds.size + preds.rank, target.size, target.size + target.rank))
    fail(SYNCFREE_WRONG_SHAPE, "Expected `preds` and `target` to have the same shape, but got ",
         shape_text(preds), " and ", shape_text(target), ".");
}

void check_same_device(const char* name, const syncfree_tensor& tensor, const syncfree_tensor& on) {
  const bool same = tensor.device_type == on.device_type &&
                    (tensor.device_type == SYNCFREE_CPU || tensor.device_index == on.device_index);
  if (!same)
    fail(SYNCFREE_WRONG_DEVICE, "Expected `", name,
         "` on the device of `preds`, but it is on another.");
}

Result result(const char* name, const syncfree_tensor* tensor, const syncfree_tensor& on,
              const std::int64_t* sizes, int rank) {
  const TensorView view = checked(name, required_view(name, tensor));
  check_same_device(name, *tensor, on);
  if (!is_floating(view.dtype))
    fail(SYNCFREE_WRONG_DTYPE, "Expected `", name, "` to have a floating dtype, but got ",
         kDtypeNames[tensor->dtype], ".");
  TensorView wanted;
  wanted.rank = rank;
  std::copy_n(sizes, rank, wanted.size);
  // A single number may have any shape of one element.
  const bool fits = rank == 0 ? view.numel() == 1
                              : std::equal(sizes, sizes + rank, view.size, view.size + view.rank);
  if (!fits)
    fail(SYNCFREE_WRONG_SHAPE, "Expected `", name, "` of shape ", shape_text(wanted), ", but got ",
         shape_text(view), ".",
         rank > 0 ? ""
                  : " Options ask for more than one number: `reduction`, PSNR's `kept`, an "
                    "accuracy's `average` and `samplewise`.");
  if (!is_dense(view))
    fail(SYNCFREE_WRONG_SHAPE, "Expected `", name, "` to lie densely in row-major order.");
  return {tensor->data, view.dtype};
}

void check_choice(const char* name, std::int32_t choice, std::int32_t last) {
  if (choice < 0 || choice > last)
    fail(SYNCFREE_INVALID_ARGUMENT, "Expected `", name, "` to be in the range [0, ", last,
         "], but got ", choice, ".");
}

Reduction reduction_of(std::int32_t reduction) {
  check_choice("reduction", reduction, SYNCFREE_SUM);
  return static_cast<Reduction>(reduction);
}

DataRange range_of(const syncfree_range& range, bool may_come_from_data) {
  check_choice("range.source", range.source, SYNCFREE_RANGE_DATA);
  DataRange out;
  if (range.source == SYNCFREE_RANGE_DATA) {
    if (!may_come_from_data)
      fail(SYNCFREE_INVALID_ARGUMENT,
           "Expected the range as a number or an interval: this metric cannot take it from the "
           "data.");
    out.source = DataRange::Source::kData;
  } else if (range.source == SYNCFREE_RANGE_INTERVAL) {
    if (!(range.low < range.high))
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected an interval (low, high) with low < high, but got (",
           range.low, ", ", range.high, ").");
    out = {DataRange::Source::kInterval, range.high - range.low, range.low, range.high};
  } else {
    if (!(range.value > 0))
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected a positive range, but got ", range.value, ".");
    out.value = range.value;
  }
  return out;
}

}  // namespace syncfree::api
