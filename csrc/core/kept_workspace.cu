// One allocation for each stream. Its zeroed part is cleared once, since kernels leave it zero.
#include "core/kept_workspace.h"

#include <algorithm>
#include <map>
#include <utility>

namespace syncfree {
namespace {

// The memory of one stream. It comes from CUDA itself: while something is warmed up for graph
// capture (torch.compile's "reduce-overhead"), torch's caching allocator would take it from that
// graph's private pool, and reclaim it there.
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
    // Without memory pools nothing can be freed in stream order, and cudaFree would wait for the
    // whole device: memory that was outgrown is not freed.
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
  // The handle of a destroyed stream may be reused, and a single handle stands for the default
  // streams of all threads; ids are unique.
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
