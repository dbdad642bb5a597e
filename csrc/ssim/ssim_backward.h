// The gradient of SSIM with respect to both images: what is computed, and the CPU and CUDA
// launchers.
#pragma once

#include <algorithm>
#include <optional>

#include "ssim/ssim.h"

namespace syncfree::ssim {

// Where the gradient of one image is written; `data` is null if it is not wanted.
struct Gradient {
  TensorView layout;
  void* data = nullptr;

  // Optional: the gradient of the half-size image (`Problem::pooled_preds`, or that of the target),
  // in that image's type. Each pixel's share of it is added to the pixel's own gradient.
  TensorView pooled;
};

// Nothing is saved by the forward pass: moments are recomputed from the images. A range that is
// found from the data is treated as a constant.
struct BackwardProblem {
  Problem forward;  // without results

  // The incoming gradient of each result, that is, the one that arrives for it; `data` is null if
  // none does. `grad_value` holds (B) or one element, as `reduction` says.
  TensorView grad_value;
  TensorView grad_contrast;        // (B)
  TensorView grad_map;             // (B, C, D', H', W')
  TensorView grad_squared_error;   // (B), of the sums of errors of `Problem`
  TensorView grad_absolute_error;  // (B)

  // If set, none of these arrives. The gradient is then that of a loss for which 1 arrives:
  // loss_weight * (1 - mean of SSIM over the batch) + (1 - loss_weight) * mean absolute error.
  std::optional<double> loss_weight;

  double constant_grad_value() const { return loss_weight ? -*loss_weight : 0.0; }
  double constant_grad_absolute_error() const {
    if (!loss_weight) return 0.0;
    return (1.0 - *loss_weight) /
           static_cast<double>(std::max<std::int64_t>(forward.preds.numel(), 1));
  }

  Gradient preds;  // laid out as (B, C, D, H, W)
  Gradient target;

  // Optional, only where `run_gives_loss` or `launch_gives_loss` holds: where that loss is written.
  float* loss = nullptr;
};

void run(const BackwardProblem& problem, ParallelFor parallel_for);
bool run_gives_loss(const BackwardProblem& problem);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const BackwardProblem& problem);
cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace, cudaStream_t stream);
bool launch_gives_loss(const BackwardProblem& problem);  // on the current device
#endif

}  // namespace syncfree::ssim
