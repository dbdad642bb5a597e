// PSNR and mean absolute error, from the sums of errors that the SSIM pass computes as by-products.
#pragma once

#include <cstdint>

#include "core/data_range.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::image_quality {

struct Problem {
  const double* squared_error = nullptr;   // one sum per image
  const double* absolute_error = nullptr;  // one sum per image
  std::int64_t images = 0;
  std::int64_t elements = 0;  // of one image
  DataRange range;            // kValue or kInterval
  // kNone gives one value per image; kMean pools the errors of all images before the logarithm.
  Reduction reduction = Reduction::kMean;

  void* psnr = nullptr;  // optional
  void* mean_absolute_error = nullptr;
  DType result_dtype = DType::kFloat32;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
inline WorkspaceSize workspace_size(const Problem&) {
  return {};
}
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::image_quality
