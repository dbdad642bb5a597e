// csrc/core/kept_workspace.cu over a runtime on the host, whose calls fail where the test wants.
#include "core/kept_workspace.cu"

#include <cstdlib>
#include <cstring>

namespace {

bool has_pools = true, fails_memset = false;

}  // namespace

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = reinterpret_cast<unsigned long long>(stream);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
  return has_pools ? cudaMalloc(memory, bytes) : cudaErrorNotSupported;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  if (fails_memset) return cudaErrorMemoryAllocation;
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

extern "C" {

void set(bool pools, bool memset_fails) {
  has_pools = pools;
  fails_memset = memset_fails;
}

// A call that is lent `bytes` of zeros, writes into all of them, leaves zeros if it is `launched`
// whole, and fails otherwise. Whether zeros were there, or -1 if nothing was lent.
int call(std::size_t stream, std::size_t bytes, bool launched) {
  syncfree::KeptWorkspace kept;
  const auto status = syncfree::lease_kept_workspace(0, reinterpret_cast<cudaStream_t>(stream),
                                                     syncfree::WorkspaceSize{bytes, 256}, &kept);
  if (status != cudaSuccess) return -1;
  auto* const zeroed = static_cast<unsigned char*>(kept.memory.zeroed);
  bool are_zero = true;
  for (std::size_t i = 0; i < bytes; ++i) are_zero = are_zero && zeroed[i] == 0;
  std::memset(zeroed, launched ? 0 : 7, bytes);
  kept.note(launched ? cudaSuccess : cudaErrorMemoryAllocation);
  return are_zero;
}
}
