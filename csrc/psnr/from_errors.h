// PSNR from the squared errors that a metric has gathered and the number of elements of each.
#pragma once

#include "core/parallel.h"
#include "core/reduction.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::psnr {

struct ErrorSums {
  // Same sizes, those of the results.
  TensorView squared_error;
  TensorView total;
  const void* data_range = nullptr;  // one element
  DType data_range_dtype = DType::kFloat32;

  double base = 10.0;
  Reduction reduction = Reduction::kMean;

  // One element, or one for each result, contiguous, with kNone.
  void* value = nullptr;
  DType result_dtype = DType::kFloat32;
};

void run(const ErrorSums& sums, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const ErrorSums& sums);
cudaError_t launch(const ErrorSums& sums, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::psnr
