// SSIM over windows of any size: what is computed, and the CPU and CUDA launchers.
//
// Of two images a and b the kernels filter s = a + b and d = a - b: the means and variances of s
// and d under the window give SSIM (ssim_terms.cuh). What they sum is the deficit, 1 - SSIM, which
// is exactly 0 for equal images.
#pragma once

#include <cstdint>

#include "core/data_range.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/running_mean.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::ssim {

// One spatial axis of the window. Output i covers the inputs i - pad ... i - pad + taps - 1,
// mirrored at the borders without repeating the edge, so the map has size + 2 * pad - (taps - 1)
// positions. `pad` is a number of its own because windows that stay inside the image have pad = 0,
// and because TorchMetrics' 3-D padding is not always (taps - 1) / 2.
struct Axis {
  int taps = 1;
  int pad = 0;
  double sigma = 0.0;  // of the Gaussian; 0 makes the axis uniform
};

struct Problem {
  // (B, C, D, H, W), both of the same sizes; 2-D images have D = 1 and a window of one tap there.
  TensorView preds;
  TensorView target;
  Axis axes[3];  // depth, height, width
  DataRange range;
  double k1 = 0.01;
  double k2 = 0.03;
  Reduction reduction = Reduction::kMean;

  // Results, in the types named. `value` holds one element, or B with kNone.
  void* value = nullptr;
  void* map = nullptr;  // optional beside `value`, (B, C, D', H', W') contiguous
  void* contrast =
      nullptr;  // optional, always B: mean of the contrast term over the map less `pad`
  DType result_dtype = DType::kFloat32;

  // Optional with kMean and kSum: states to which the same pass adds the batch, before its values
  // are rounded. `value` then has the dtype of the state's sum, whatever `result_dtype`.
  RunningMean running;
  DType value_dtype() const { return running.sum != nullptr ? running.sum_dtype : result_dtype; }

  // Optional by-products of the same pass over the images, one per image, as float64: the sums of
  // (preds - target)^2 and of |preds - target| after clamping.
  double* squared_error = nullptr;
  double* absolute_error = nullptr;

  // Optional: both images at half the size, for the next scale of a pyramid. Each pixel is the mean
  // of 2 x 2 pixels (2 x 2 x 2 if there is more than one slice) before clamping; a last odd row or
  // column is left out. (B, C, D / 2, H / 2, W / 2) contiguous, float64 for float64 `preds`, else
  // float32. `contrast` is then the only other result, and `value` is null.
  void* pooled_preds = nullptr;
  void* pooled_target = nullptr;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Problem& problem);
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);

// Small scales of a pyramid can share one launch, once their images exist. `problems` begin with
// the finest scale; each asks either for its contrast or for its value.
inline constexpr int kMostJointScales = 8;

bool can_join(const Problem& problem);
WorkspaceSize joint_workspace_size(const Problem* problems, int count);
cudaError_t launch_jointly(const Problem* problems, int count, const Workspace& workspace,
                           cudaStream_t stream);
#endif

}  // namespace syncfree::ssim
