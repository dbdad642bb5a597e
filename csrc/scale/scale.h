// Multiplies gradients that were computed ahead by the gradient that arrives for their loss, which
// is usually one.
#pragma once

#include <cstdint>

#include "core/parallel.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::scale {

struct Elements {
  float* data = nullptr;
  std::int64_t count = 0;
};

// In place. No element is read or written if the factor is one.
struct Problem {
  Elements parts[2];
  const void* factor = nullptr;
  DType factor_dtype = DType::kFloat32;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
inline WorkspaceSize workspace_size(const Problem&) {
  return {};
}
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::scale
