// Small conversions between torch's tensors and what kernels take.
#include "ops/torch_abi.h"

#include <algorithm>
#include <iterator>
#include <string>

#if defined(SYNCFREE_OPS_CUDA)
#include "ops/cuda_empty.h"
#endif

namespace syncfree::ops {
namespace {

// "cuda:0"
std::string device_text(const Tensor& tensor) {
  const Device device = device_of(tensor);
  if (device.type == aoti_torch_device_type_cpu()) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

bool is_complex(const Tensor& tensor) {
  const ScalarType type = tensor.scalar_type();
  return type == ScalarType::ComplexHalf || type == ScalarType::ComplexFloat ||
         type == ScalarType::ComplexDouble;
}

[[noreturn]] void fail_dtype(const Tensor& tensor, const char* name) {
  const std::string expected =
      name == nullptr ? "Expected" : "Expected `" + std::string(name) + "` to be";
  fail_runtime(expected,
               " a tensor of float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64 "
               "or bool, but got ",
               dtype_text(tensor),
               is_complex(tensor) ? ". Take its `.abs()`, `.real` or `.imag`."
                                  : ". Convert it with `.to(torch.float32)`.");
}

// Whether `one` broadcasts to the shape of `all`. (N, 1) and (N,) do not: both grow, to (N, N).
bool expands(const Tensor& one, const Tensor& all) {
  const auto sizes = one.sizes(), whole = all.sizes();
  if (sizes.size() > whole.size()) return false;
  return std::equal(sizes.begin(), sizes.end(), whole.end() - sizes.size(),
                    [](auto size, auto of_all) { return size == 1 || size == of_all; });
}

}  // namespace

DType dtype_of(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Double:
      return DType::kFloat64;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Byte:
      return DType::kUInt8;
    case ScalarType::Char:
      return DType::kInt8;
    case ScalarType::Short:
      return DType::kInt16;
    case ScalarType::Int:
      return DType::kInt32;
    case ScalarType::Long:
      return DType::kInt64;
    case ScalarType::Bool:
      return DType::kBool;
    default:
      fail_dtype(tensor, name);
  }
}

ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ScalarType::Double;
    case DType::kFloat16:
      return ScalarType::Half;
    case DType::kBFloat16:
      return ScalarType::BFloat16;
    case DType::kUInt8:
      return ScalarType::Byte;
    case DType::kInt8:
      return ScalarType::Char;
    case DType::kInt16:
      return ScalarType::Short;
    case DType::kInt32:
      return ScalarType::Int;
    case DType::kInt64:
      return ScalarType::Long;
    case DType::kBool:
      return ScalarType::Bool;
    default:
      return ScalarType::Float;
  }
}

std::string dtype_text(const Tensor& tensor) {
  struct Name {
    ScalarType type;
    const char* text;
  };
  static constexpr Name kNames[] = {
      {ScalarType::Float, "float32"},
      {ScalarType::Double, "float64"},
      {ScalarType::Half, "float16"},
      {ScalarType::BFloat16, "bfloat16"},
      {ScalarType::Byte, "uint8"},
      {ScalarType::Char, "int8"},
      {ScalarType::Short, "int16"},
      {ScalarType::Int, "int32"},
      {ScalarType::Long, "int64"},
      {ScalarType::Bool, "bool"},
      {ScalarType::ComplexHalf, "complex32"},
      {ScalarType::ComplexFloat, "complex64"},
      {ScalarType::ComplexDouble, "complex128"},
      {ScalarType::UInt16, "uint16"},
      {ScalarType::UInt32, "uint32"},
      {ScalarType::UInt64, "uint64"},
      {ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
      {ScalarType::Float8_e5m2, "float8_e5m2"},
  };
  const ScalarType type = tensor.scalar_type();
  const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& each) { return each.type == type; });
  return name != std::end(kNames) ? name->text : torch::headeronly::toString(type);
}

std::string shape_text(const Tensor& tensor) {
  std::ostringstream text;
  text << '[';
  const char* separator = "";
  for (const std::int64_t size : tensor.sizes()) {
    text << separator << size;
    separator = ", ";
  }
  text << ']';
  return text.str();
}

void check_same_shape(const Tensor& preds, const Tensor& target) {
  const auto a = preds.sizes(), b = target.sizes();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    fail_runtime("Predictions and targets are expected to have the same shape, but got ",
                 shape_text(preds), " and ", shape_text(target), ".",
                 expands(preds, target) || expands(target, preds)
                     ? " If one is meant for all, pass `*torch.broadcast_tensors(preds, target)`."
                     : "");
}

void check_same_device(const Tensor& a, const Tensor& b, const char* a_name, const char* b_name) {
  if (device_of(a) != device_of(b))
    fail_runtime("Expected `", a_name, "` and `", b_name, "` on the same device, but got ",
                 device_text(a), " and ", device_text(b),
                 ". Move them together with `.to(device)`.");
}

void check_dtypes(const Tensor& a, const Tensor& b, const char* a_name, const char* b_name) {
  dtype_of(a, a_name);
  dtype_of(b, b_name);
}

Device device_of(const Tensor& tensor) {
  Device device;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device.type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &device.index));
  return device;
}

TensorView view_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() > kMaxRank)
    fail_value("Expected a tensor of at most ", kMaxRank, " dimensions here, but got shape ",
               shape_text(tensor), ". Flatten some of them first.");
  std::int64_t* strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  TensorView view;
  view.data = tensor.const_data_ptr();
  view.dtype = dtype_of(tensor);
  view.rank = static_cast<int>(sizes.size());
  std::copy_n(sizes.data(), view.rank, view.size);
  std::copy_n(strides, view.rank, view.stride);
  return view;
}

Tensor empty_by_stable_abi(std::span<const std::int64_t> sizes, ScalarType dtype,
                           const Device& device) {
  std::int64_t strides[kMaxRank];
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<std::int64_t>(sizes.size()), sizes.data(), strides,
      static_cast<std::int32_t>(dtype), device.type, device.index, &handle));
  return Tensor(handle);
}

Tensor empty_like_device(std::span<const std::int64_t> sizes, DType dtype, const Tensor& like) {
  if (sizes.size() > kMaxRank)
    fail_value("Expected a result of at most ", kMaxRank, " dimensions.");
  const Device device = device_of(like);
#if defined(SYNCFREE_OPS_CUDA)
  if (device.type == aoti_torch_device_type_cuda()) [[likely]]
    return empty_on_cuda(sizes, scalar_type_of(dtype), device.index);
#endif
  return empty_by_stable_abi(sizes, scalar_type_of(dtype), device);
}

}  // namespace syncfree::ops
