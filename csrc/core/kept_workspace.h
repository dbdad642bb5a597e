// Workspaces that are kept from call to call, one for each stream: allocation and memset would cost
// more than most kernels here. A call leases the workspace of its stream.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "core/workspace.h"

namespace syncfree {

// The most that one stream keeps. The rare larger request is allocated for its call alone.
inline constexpr std::size_t kMostKept = std::size_t{8} << 20;

// A lease. While it lives no other host thread gets the same memory: the launches of two calls that
// share a stream must not interleave.
struct KeptWorkspace {
  Workspace memory;
  std::unique_lock<std::mutex> lock;
  bool* is_zeroed = nullptr;

  // To be called after the launches. If one of them failed, the zeroed part may not be zero, since
  // the last kernel of a call restores the zeros.
  void note(cudaError_t launched) {
    if (launched != cudaSuccess && is_zeroed != nullptr) *is_zeroed = false;
  }
};

// Leases the workspace of (device, stream), grown to at least `size`. The device is current, the
// stream is not capturing, and `size` is aligned and at most kMostKept.
cudaError_t lease_kept_workspace(int device, cudaStream_t stream, const WorkspaceSize& size,
                                 KeptWorkspace* out);

}  // namespace syncfree
