// Scratch memory is the workspace that the stream keeps, or else comes from torch's allocator.
#include "ops/cuda_context.h"

#include <utility>

#include "core/device_info.h"
#include "ops/cuda_empty.h"

namespace syncfree::ops {
namespace {

LeasedWorkspace allocate(const WorkspaceSize& size, int device, cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(size.total());
  Tensor owner = empty_on_cuda({&bytes, 1}, ScalarType::Byte, device);
  // The allocation may have switched CUDA to the device that torch considers current, of which
  // torch need not have told CUDA before.
  check_cuda(cudaSetDevice(device));
  char* memory = static_cast<char*>(owner.mutable_data_ptr());
  if (size.zeroed > 0) check_cuda(cudaMemsetAsync(memory, 0, size.zeroed, stream));
  return {{{memory, memory + size.zeroed}}, std::move(owner)};
}

}  // namespace

void check_cuda(cudaError_t status) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  fail_runtime("CUDA error: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

CudaContext::CudaContext(const Tensor& tensor) : device_(device_of(tensor).index) {
  int current = -1;  // asked of CUDA: torch's answer takes a detour through its accelerator hooks
  check_cuda(cudaGetDevice(&current));
  if (current != device_) guard_.emplace(device_);
  check_cuda(know_device(device_));
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_, &stream));
  stream_ = static_cast<cudaStream_t>(stream);
}

bool CudaContext::is_capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

LeasedWorkspace CudaContext::workspace(const WorkspaceSize& size) const {
  const WorkspaceSize wanted = size.aligned();
  if (wanted.total() == 0) return {};
  if (wanted.total() > kMostKept || is_capturing()) return allocate(wanted, device_, stream_);
  KeptWorkspace kept;
  const cudaError_t status = lease_kept_workspace(device_, stream_, wanted, &kept);
  if (status == cudaErrorMemoryAllocation) [[unlikely]] {
    cudaGetLastError();
    return allocate(wanted, device_, stream_);
  }
  check_cuda(status);
  return {std::move(kept), std::nullopt};
}

}  // namespace syncfree::ops
