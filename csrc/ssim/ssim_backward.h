// The gradient of SSIM with respect to both images: what is computed, and the CPU and CUDA
// launchers.
#pragma once

#include <algorithm>
#include <optional>

#include "ssim/ssim.h"

namespace syncfree::ssim {

// A gradient that is written; null data where nobody asked for it.
struct Gradient {
  TensorView layout;
  void* data = nullptr;

  // Optional: that of `Problem::pooled_preds`, or of the target, in the type of those images. Each
  // pixel gets its share on top.
  TensorView pooled;
};

// Nothing of the forward pass is kept: moments are computed again from the images. Where the range
// comes from the data it counts as a constant.
struct BackwardProblem {
  Problem forward;  // without results

  // What arrives for each result; null data where nothing does. (B) or one element, as `reduction`
  // says.
  TensorView grad_value;
  TensorView grad_contrast;        // (B)
  TensorView grad_map;             // (B, C, D', H', W')
  TensorView grad_squared_error;   // (B), for the sums of `Problem`
  TensorView grad_absolute_error;  // (B)

  // In place of these: as if 1 had arrived for a loss, loss_weight * (1 - mean of SSIM over the
  // batch) + (1 - loss_weight) * mean absolute error.
  std::optional<double> loss_weight;

  double constant_grad_value() const { return loss_weight ? -*loss_weight : 0.0; }
  double constant_grad_absolute_error() const {
    if (!loss_weight) return 0.0;
    return (1.0 - *loss_weight) /
           static_cast<double>(std::max<std::int64_t>(forward.preds.numel(), 1));
  }

  Gradient preds;  // laid out as (B, C, D, H, W)
  Gradient target;

  // Optional, where the launcher says so: that loss.
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
