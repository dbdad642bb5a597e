// Device, stream and scratch memory of one call on a CUDA tensor.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "core/kept_workspace.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

void check_cuda(cudaError_t status);

// The workspace of one call's launches, on lease: while this object lives, no other host thread
// gets the same memory, because the launches of two calls that share a stream must not interleave.
struct LeasedWorkspace {
  KeptWorkspace kept;
  std::optional<Tensor> owner;  // of memory that is not kept for later calls

  const Workspace& memory() const { return kept.memory; }
  // Throws if the call's launches failed.
  void check(cudaError_t launched) {
    kept.note(launched);
    check_cuda(launched);
  }
};

// Makes the tensor's device current for the life of the object.
class CudaContext {
 public:
  explicit CudaContext(const Tensor& tensor);

  cudaStream_t stream() const { return stream_; }
  int device() const { return device_; }
  bool is_capturing() const;  // a CUDA graph of the stream

  // Each (device, stream) keeps one block, which its calls share, since they run one after the
  // other. It is zeroed once, since kernels leave its zeroed part zero. Under graph capture the
  // block comes from the graph's own pool instead, with a memset inside the graph: a replay may run
  // beside other work of the captured stream. If more than kMostKept is wanted, or CUDA has no
  // memory left, the block comes from torch's caching allocator for this call. torch may have some
  // in its cache; otherwise this may wait for the device, like any such allocation.
  LeasedWorkspace workspace(const WorkspaceSize& size) const;

 private:
  int device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;  // if another was current
  cudaStream_t stream_;
};

}  // namespace syncfree::ops
