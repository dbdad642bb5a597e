// Fills the tensors that ops allocate before kernels write to them: an element that no kernel
// writes must not look right because fresh memory happens to be zero. The linker's --wrap redirects
// the ops' calls here.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <cstring>

namespace {

// As a float a huge negative number, and not NaN, which a test could expect.
constexpr int kFill = 0xFE;

AOTITorchError fill(AtenTensorHandle tensor) {
  void* data = nullptr;
  std::int64_t bytes = 0;
  AOTITorchError error = aoti_torch_get_data_ptr(tensor, &data);
  if (error == AOTI_TORCH_SUCCESS) error = aoti_torch_get_storage_size(tensor, &bytes);
  if (error == AOTI_TORCH_SUCCESS && bytes > 0)
    std::memset(data, kFill, static_cast<std::size_t>(bytes));
  return error;
}

}  // namespace

extern "C" {

AOTITorchError __real_aoti_torch_empty_strided(std::int64_t, const std::int64_t*,
                                               const std::int64_t*, std::int32_t, std::int32_t,
                                               std::int32_t, AtenTensorHandle*);
AOTITorchError __wrap_aoti_torch_empty_strided(std::int64_t dims, const std::int64_t* sizes,
                                               const std::int64_t* strides, std::int32_t dtype,
                                               std::int32_t device_type, std::int32_t device_index,
                                               AtenTensorHandle* result) {
  const AOTITorchError error = __real_aoti_torch_empty_strided(dims, sizes, strides, dtype,
                                                               device_type, device_index, result);
  return error == AOTI_TORCH_SUCCESS ? fill(*result) : error;
}

AOTITorchError __real_torch_call_dispatcher(const char*, const char*, StableIValue*, std::uint64_t);
AOTITorchError __wrap_torch_call_dispatcher(const char* name, const char* overload,
                                            StableIValue* stack, std::uint64_t version) {
  const AOTITorchError error = __real_torch_call_dispatcher(name, overload, stack, version);
  if (error != AOTI_TORCH_SUCCESS || std::strcmp(name, "aten::empty_like") != 0) return error;
  AtenTensorHandle tensor = nullptr;
  std::memcpy(&tensor, &stack[0], sizeof(tensor));
  return fill(tensor);
}

}  // extern "C"
