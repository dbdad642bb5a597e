// Which device is current where accuracy_from_counts allocates the slots of a GPU's errors, over a
// fake runtime; its tensors lie on the host and say that they are on the second GPU.
#define SYNCFREE_WITH_CUDA
#define SYNCFREE_OPS_CUDA
#include "kept_workspace.cpp"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

// No operator is registered: the process may have the real ones.
#undef STABLE_TORCH_LIBRARY_FRAGMENT
#undef STABLE_TORCH_LIBRARY_IMPL
#define STABLE_TORCH_LIBRARY_FRAGMENT(ns, library) \
  void C10_CONCATENATE(unused, C10_UID)(torch::stable::detail::StableLibrary & library)
#define STABLE_TORCH_LIBRARY_IMPL(ns, key, library) STABLE_TORCH_LIBRARY_FRAGMENT(ns, library)

#include "ops/accuracy_error.cpp"
#include "ops/accuracy_from_counts.cpp"
#include "ops/cuda_error_record.cpp"

namespace {

constexpr int kDevice = 1;
int current = 0, allocated_on = -1;

}  // namespace

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) {
  allocated_on = current;
  *memory = std::calloc(bytes, 1);
  return cudaSuccess;
}

namespace syncfree::accuracy {

WorkspaceSize workspace_size(const Reduction&) {
  return {};
}

cudaError_t launch(const Reduction&, const Workspace&, cudaStream_t) {
  return cudaSuccess;
}

}  // namespace syncfree::accuracy

namespace syncfree::ops {

Device device_of(const Tensor&) {
  return {static_cast<std::int32_t>(torch::headeronly::DeviceType::CUDA), kDevice};
}

void check_same_device(const Tensor&, const Tensor&, const char*, const char*) {}

std::string dtype_text(const Tensor&) {
  return "a dtype";
}

std::string shape_text(const Tensor&) {
  return "a shape";
}

TensorView view_of(const Tensor& tensor) {
  TensorView view;
  view.data = tensor.const_data_ptr();
  view.dtype = DType::kInt64;
  return view;
}

Tensor on_the_host(ScalarType dtype) {
  return torch::stable::empty({}, dtype);
}

Tensor empty_like_device(std::span<const std::int64_t>, DType, const Tensor&) {
  return on_the_host(ScalarType::Float);
}

void check_cuda(cudaError_t) {}

CudaContext::CudaContext(const Tensor& tensor)
    : device_(device_of(tensor).index), stream_(nullptr) {
  current = device_;
}

LeasedWorkspace CudaContext::workspace(const WorkspaceSize&) const {
  return {};
}

}  // namespace syncfree::ops

// The device on which the first call allocates the slots.
extern "C" int device_of_the_slots() {
  using namespace syncfree::ops;
  const Tensor count = on_the_host(ScalarType::Long);
  constexpr std::int64_t kValidate = 8;  // of AccuracyOptions, for binary counts
  accuracy_from_counts(count, count, count, count, std::nullopt, kValidate);
  return allocated_on;
}
