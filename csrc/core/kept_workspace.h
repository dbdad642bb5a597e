// Workspaces that streams keep: allocation and memset would cost more than most kernels here.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "core/workspace.h"

namespace syncfree {

// What one stream keeps at most. A rare larger request is allocated for its call alone.
inline constexpr std::size_t kMostKept = std::size_t{8} << 20;

// While it lives no other host thread gets the same memory: two calls that share a stream must not
// mix their launches.
struct KeptWorkspace {
  Workspace memory;
  std::unique_lock<std::mutex> lock;
  bool* is_zeroed = nullptr;

  // Behind a call that could not enqueue all of its launches: the last one leaves the zeros.
  void note(cudaError_t launched) {
    if (launched != cudaSuccess && is_zeroed != nullptr) *is_zeroed = false;
  }
};

// The block of (device, stream), grown to `size` where it is smaller. The device is current, the
// stream does not capture, and `size` is aligned and at most kMostKept.
cudaError_t lease_kept_workspace(int device, cudaStream_t stream, const WorkspaceSize& size,
                                 KeptWorkspace* out);

}  // namespace syncfree
