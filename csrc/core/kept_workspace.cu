// One block for each stream, zeroed once, since kernels leave its zeroed part zero.
#include "core/kept_workspace.h"

#include <algorithm>
#include <map>
#include <utility>

namespace syncfree {
namespace {

// It comes from CUDA itself: torch's allocator would take it from the private pool of whatever is
// being warmed up for capture (torch.compile's "reduce-overhead"), and reclaim it there.
struct Block {
  std::mutex mutex;
  char* memory = nullptr;
  WorkspaceSize size;
  bool is_zeroed = false;

  cudaError_t reserve(const WorkspaceSize& wanted, cudaStream_t stream) {
    const bool fits =
        memory != nullptr && size.zeroed >= wanted.zeroed && size.scratch >= wanted.scratch;
    if (fits && is_zeroed) [[likely]]
      return cudaSuccess;
    cudaError_t status = fits ? cudaSuccess : grow(wanted, stream);
    if (status == cudaSuccess) status = cudaMemsetAsync(memory, 0, size.zeroed, stream);
    is_zeroed = status == cudaSuccess;
    return status;
  }

 private:
  cudaError_t grow(WorkspaceSize wanted, cudaStream_t stream) {
    wanted = {std::max(size.zeroed, wanted.zeroed), std::max(size.scratch, wanted.scratch)};
    void* fresh = nullptr;
    cudaError_t status = cudaMallocAsync(&fresh, wanted.total(), stream);
    const bool has_pools = status != cudaErrorNotSupported;  // some virtual GPUs have none
    if (!has_pools) {
      cudaGetLastError();
      status = cudaMalloc(&fresh, wanted.total());
    }
    if (status != cudaSuccess) return status;
    // Without pools nothing can be freed in the stream's order, and cudaFree would wait for all of
    // the device: what was outgrown stays.
    if (memory != nullptr && has_pools) status = cudaFreeAsync(memory, stream);
    memory = static_cast<char*>(fresh);
    size = wanted;
    return status;
  }
};

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

cudaError_t lease_kept_workspace(int device, cudaStream_t stream, const WorkspaceSize& size,
                                 KeptWorkspace* out) {
  // Handles are reused after a stream is destroyed, and one handle names each thread's own default
  // stream; ids are unique.
  unsigned long long id = 0;
  cudaError_t status = cudaStreamGetId(stream, &id);
  if (status != cudaSuccess) return status;
  std::unique_lock finding(cache().mutex);
  Block& block = cache().blocks[{device, id}];
  finding.unlock();
  std::unique_lock lock(block.mutex);
  status = block.reserve(size, stream);
  if (status != cudaSuccess) return status;
  *out = {{block.memory, block.memory + block.size.zeroed}, std::move(lock), &block.is_zeroed};
  return cudaSuccess;
}

}  // namespace syncfree
