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

struct Block {
  Tensor memory;
  std::size_t zeroed = 0;
  std::size_t scratch = 0;

  Workspace workspace() const {
    char* base = static_cast<char*>(memory.mutable_data_ptr());
    return {base, base + zeroed};
  }
};

Block allocate(std::size_t zeroed, std::size_t scratch, int device, cudaStream_t stream) {
  const std::int64_t bytes = static_cast<std::int64_t>(zeroed + scratch), stride = 1;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &bytes, &stride, aoti_torch_dtype_uint8(),
                                                  aoti_torch_device_type_cuda(), device, &handle));
  Block block{Tensor(handle), zeroed, scratch};
  if (zeroed > 0) check_cuda(cudaMemsetAsync(block.workspace().zeroed, 0, zeroed, stream));
  return block;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

struct Cache {
  std::mutex mutex;
  std::map<std::pair<int, cudaStream_t>, Block> blocks;
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
  if (zeroed + scratch > kMostKept || is_capturing(stream_)) {
    Block block = allocate(zeroed, scratch, device_, stream_);
    const Workspace memory = block.workspace();
    return {memory, std::move(block.memory)};
  }
  const std::lock_guard lock(cache().mutex);
  const auto [entry, fresh] = cache().blocks.try_emplace({device_, stream_});
  Block& block = entry->second;
  if (fresh || block.zeroed < zeroed || block.scratch < scratch)
    block = allocate(std::max(block.zeroed, zeroed), std::max(block.scratch, scratch), device_,
                     stream_);
  return {block.workspace(), std::nullopt};
}

}  // namespace syncfree::ops
