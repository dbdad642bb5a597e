// Device, stream and scratch memory of one call on a CUDA tensor.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "core/kept_workspace.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

void check_cuda(cudaError_t status);

// Memory for the launches of one call. While it lives no other host thread gets the same memory:
// two calls that share a stream must not mix their launches.
struct LeasedWorkspace {
  KeptWorkspace kept;
  std::optional<Tensor> owner;  // of what is not kept for later calls

  const Workspace& memory() const { return kept.memory; }
  // Throws where the call's launches failed.
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

  // Each (device, stream) keeps one block, zeroed once, since kernels leave its zeroed part zero;
  // calls on one stream run one after the other. Under graph capture the block comes from the
  // graph's own pool instead, with a memset inside the graph: a replay may run beside other work of
  // the captured stream. Where CUDA has no memory left it comes from torch for this call, which may
  // have some in its cache, and may wait for the device as with any allocation then.
  LeasedWorkspace workspace(const WorkspaceSize& size) const;

 private:
  int device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;  // where another is current
  cudaStream_t stream_;
};

}  // namespace syncfree::ops
