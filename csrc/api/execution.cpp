// Memory of one call: the caller's scratch, or the stream's kept workspace and the device's pool.
#include "api/execution.h"

#if defined(SYNCFREE_WITH_CUDA)
#include "core/device_info.h"
#endif

namespace syncfree::api {
namespace {

std::byte* aligned(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) + (aligned_to_workspace(address) - address);
}

}  // namespace

Execution::Execution(const syncfree_launch* launch, const syncfree_tensor& on) {
  if (launch != nullptr) launch_ = *launch;
  if (on.device_type != SYNCFREE_CUDA) return;
#if defined(SYNCFREE_WITH_CUDA)
  if (on.device_index < 0)
    fail(SYNCFREE_WRONG_DEVICE, "Expected the index of a CUDA device, but got ", on.device_index,
         ".");
  current_.emplace(on.device_index);
  check_cuda(know_device(on.device_index));
  device_index_ = on.device_index;
#else
  fail(SYNCFREE_WITHOUT_CUDA,
       "The tensors are on CUDA, but this libsyncfree_core was built without it. Build syncfree "
       "again with -DSYNCFREE_CUDA=ON.");
#endif
}

bool Execution::prepare(std::size_t bytes, const WorkspaceSize& workspace) {
  bytes = aligned_to_workspace(bytes);
  const std::size_t all = bytes + workspace.total();
  if (launch_.scratch_needed != nullptr) {
    // The alignment is added for scratch memory that begins at any address.
    *launch_.scratch_needed = all == 0 ? 0 : all + kWorkspaceAlignment;
    return false;
  }
  if (all == 0) return true;
#if defined(SYNCFREE_WITH_CUDA)
  if (on_cuda()) {
    prepare_on_cuda(bytes, workspace);
    return true;
  }
#endif
  if (launch_.scratch == nullptr) {
    host_memory_.reset(new std::byte[bytes + kWorkspaceAlignment]);
    memory_ = aligned(host_memory_.get());
  } else {
    memory_ = take_given(bytes);
  }
  return true;
}

std::byte* Execution::take_given(std::size_t bytes) {
  std::byte* const begin = aligned(launch_.scratch);
  const std::size_t lost =
      static_cast<std::size_t>(begin - static_cast<std::byte*>(launch_.scratch));
  if (launch_.scratch_bytes < bytes + lost)
    fail(SYNCFREE_NEEDS_SCRATCH, "Expected at least ", bytes + kWorkspaceAlignment,
         " bytes of scratch memory for this call, but got ", launch_.scratch_bytes,
         ". `scratch_needed` tells how much a call wants.");
  return begin;
}

#if !defined(SYNCFREE_WITH_CUDA)

Execution::~Execution() = default;

#else

void check_cuda(cudaError_t status) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  fail(status == cudaErrorMemoryAllocation ? SYNCFREE_OUT_OF_MEMORY : SYNCFREE_CUDA_ERROR,
       "CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ").");
}

CurrentDevice::CurrentDevice(int device) {
  check_cuda(cudaGetDevice(&before_));
  if (before_ == device) return;
  check_cuda(cudaSetDevice(device));
  changed_ = true;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) cudaSetDevice(before_);
}

Execution::~Execution() {
  // Stream-ordered: freed after the launches that use it.
  if (from_pool_ != nullptr) cudaFreeAsync(from_pool_, launch_.stream);
}

void Execution::prepare_on_cuda(std::size_t bytes, const WorkspaceSize& workspace) {
  const bool kept = launch_.scratch == nullptr && workspace.total() <= kMostKept;
  const std::size_t rest = bytes + (kept ? 0 : workspace.total());
  if (launch_.scratch == nullptr) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(launch_.stream, &capture));
    if (capture != cudaStreamCaptureStatusNone)
      fail(SYNCFREE_NEEDS_SCRATCH,
           "The stream captures a graph: expected scratch memory that lives as long as the graph. "
           "`scratch_needed` tells how much this call wants.");
  }
  std::byte* memory = nullptr;
  if (rest > 0) memory = launch_.scratch != nullptr ? take_given(rest) : take_from_pool(rest);
  memory_ = memory;
  if (workspace.total() == 0) return;
  if (kept) {
    check_cuda(lease_kept_workspace(device_index_, launch_.stream, workspace, &kept_));
    workspace_ = kept_.memory;
  } else {
    workspace_ = {memory + bytes, memory + bytes + workspace.zeroed};
    if (workspace.zeroed > 0)
      check_cuda(cudaMemsetAsync(workspace_.zeroed, 0, workspace.zeroed, launch_.stream));
  }
}

std::byte* Execution::take_from_pool(std::size_t bytes) {
  const cudaError_t status = cudaMallocAsync(&from_pool_, bytes, launch_.stream);
  if (status == cudaErrorNotSupported) {
    cudaGetLastError();
    fail(SYNCFREE_NEEDS_SCRATCH, "This device has no memory pool to take ", bytes,
         " bytes from: expected scratch memory. `scratch_needed` tells how much a call wants.");
  }
  check_cuda(status);
  return static_cast<std::byte*>(from_pool_);
}

#endif

}  // namespace syncfree::api
