// Scratch memory is cached per stream: allocation and memset would cost more than most kernels
// here.
#include "ops/cuda_context.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace syncfree::ops {
namespace {

constexpr std::size_t kAlignment = 256;

// What one stream keeps at most. A rare larger request is allocated for its call alone.
constexpr std::size_t kMostKept = std::size_t{8} << 20;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What one stream keeps. It comes from CUDA itself: torch's allocator would take it from the
// private pool of whatever is being warmed up for capture (torch.compile's "reduce-overhead"), and
// reclaim it there.
struct Block {
  std::mutex mutex;
  char* memory = nullptr;
  std::size_t zeroed = 0;
  std::size_t scratch = 0;

  void reserve(std::size_t wanted_zeroed, std::size_t wanted_scratch, cudaStream_t stream) {
    if (memory != nullptr && zeroed >= wanted_zeroed && scratch >= wanted_scratch) return;
    wanted_zeroed = std::max(zeroed, wanted_zeroed);
    wanted_scratch = std::max(scratch, wanted_scratch);
    void* fresh = nullptr;
    cudaError_t status = cudaMallocAsync(&fresh, wanted_zeroed + wanted_scratch, stream);
    if (status == cudaErrorNotSupported)  // some virtual GPUs have no memory pools
      status = cudaMalloc(&fresh, wanted_zeroed + wanted_scratch);
    check_cuda(status);
    check_cuda(cudaMemsetAsync(fresh, 0, wanted_zeroed, stream));
    if (memory != nullptr) check_cuda(cudaFreeAsync(memory, stream));
    memory = static_cast<char*>(fresh);
    zeroed = wanted_zeroed;
    scratch = wanted_scratch;
  }
};

LeasedWorkspace allocate(std::size_t zeroed, std::size_t scratch, int device, cudaStream_t stream) {
  const std::int64_t bytes = static_cast<std::int64_t>(zeroed + scratch), stride = 1;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &bytes, &stride, aoti_torch_dtype_uint8(),
                                                  aoti_torch_device_type_cuda(), device, &handle));
  Tensor owner(handle);
  char* memory = static_cast<char*>(owner.mutable_data_ptr());
  if (zeroed > 0) check_cuda(cudaMemsetAsync(memory, 0, zeroed, stream));
  return {{memory, memory + zeroed}, std::move(owner), {}};
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

struct Cache {
  std::mutex mutex;
  std::map<std::pair<int, unsigned long long>, Block> blocks;
};

// Never destroyed: at exit CUDA may be gone before static objects are.
Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

}  // namespace

void check_cuda(cudaError_t status) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  fail_runtime("CUDA error: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

CudaContext::CudaContext(const Tensor& tensor) : device_(device_of(tensor).index) {
  std::int32_t current = -1;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_device_index(&current));
  if (current != device_) guard_.emplace(device_);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_, &stream));
  stream_ = static_cast<cudaStream_t>(stream);
}

LeasedWorkspace CudaContext::workspace(const WorkspaceSize& size) const {
  const std::size_t zeroed = aligned(size.zeroed), scratch = aligned(size.scratch);
  if (zeroed + scratch == 0) return {};
  if (zeroed + scratch > kMostKept || is_capturing(stream_))
    return allocate(zeroed, scratch, device_, stream_);
  // Handles are reused after a stream is destroyed, and one handle names each thread's own default
  // stream; ids are unique.
  unsigned long long id = 0;
  check_cuda(cudaStreamGetId(stream_, &id));
  std::unique_lock finding(cache().mutex);
  Block& block = cache().blocks[{device_, id}];
  finding.unlock();
  std::unique_lock lock(block.mutex);
  block.reserve(zeroed, scratch, stream_);
  return {{block.memory, block.memory + block.zeroed}, std::nullopt, std::move(lock)};
}

}  // namespace syncfree::ops
