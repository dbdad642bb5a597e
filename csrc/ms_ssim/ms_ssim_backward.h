// The gradient of multi-scale SSIM with respect to both images: what is computed, and the CPU and
// CUDA launchers.
#pragma once

#include "ms_ssim/ms_ssim.h"
#include "ssim/ssim_backward.h"

namespace syncfree::ms_ssim {

// A range that is found from the data is treated as a constant.
struct BackwardProblem {
  Problem forward;  // with the means and the pyramids that the forward pass wrote, without a value

  TensorView grad_value;  // (B) or one element, as `reduction` says

  ssim::Gradient preds;  // laid out as (B, C, D, H, W)
  ssim::Gradient target;

  // Room for the gradients of the pooled images, a pyramid for each tensor; null if not wanted.
  void* preds_pyramid = nullptr;
  void* target_pyramid = nullptr;
};

void run(const BackwardProblem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const BackwardProblem& problem);
cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::ms_ssim
