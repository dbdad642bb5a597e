// Elementwise division, with a given value wherever the denominator is zero.
#pragma once

#include <cstdint>

#include "core/parallel.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::safe_divide {

struct Problem {
  // Both are broadcast to the same sizes (stride 0); `quotient` is contiguous with those sizes.
  TensorView num;
  TensorView denom;
  double zero_division = 0.0;
  void* quotient = nullptr;
  DType result_dtype = DType::kFloat32;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
inline WorkspaceSize workspace_size(const Problem&) {
  return {};
}
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::safe_divide
