// Peak signal-to-noise ratio: what is computed, and the CPU and CUDA launchers.
#pragma once

#include <cstdint>

#include "core/data_range.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::psnr {

struct Problem {
  // Same sizes. The first `kept` dimensions index the results, the others are summed over.
  TensorView preds;
  TensorView target;
  int kept = 0;

  DataRange range;  // kValue or kInterval
  double base = 10.0;
  Reduction reduction = Reduction::kMean;

  // One element, or one for each index of the kept dimensions with kNone.
  void* value = nullptr;
  DType result_dtype = DType::kFloat32;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Problem& problem);
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::psnr
