// Multi-scale SSIM: what is computed, and the CPU and CUDA launchers.
#pragma once

#include <cstdint>

#include "core/data_range.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/running_mean.h"
#include "core/tensor_view.h"
#include "core/workspace.h"
#include "ssim/ssim.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::ms_ssim {

inline constexpr int kMaxScales = 32;

// What happens to the means of the scales before their powers are multiplied.
enum class Normalize : int {
  kNone = 0,
  kRelu = 1,    // max(x, 0)
  kSimple = 2,  // (x + 1) / 2
};

struct Exponents {
  int scales = 0;
  double beta[kMaxScales] = {};
  Normalize normalize = Normalize::kRelu;
};

// The value of an image is the product over the scales of mean^beta, where the mean is that of SSIM
// at the last, smallest scale and that of the contrast term at all others. Scale 0 is the images
// themselves; each further scale is the one before it, averaged over 2 x 2 pixels (2 x 2 x 2 of a
// volume).
struct Problem {
  // (B, C, D, H, W), both of the same sizes; 2-D images have D = 1. Volumes have more than one
  // slice at each scale but the last.
  TensorView preds;
  TensorView target;
  ssim::Axis axes[3];  // depth, height, width
  DataRange range;     // with kData each scale has a range of its own
  double k1 = 0.01;
  double k2 = 0.03;
  Exponents exponents;
  Reduction reduction = Reduction::kMean;

  void* value = nullptr;  // one element, or B with kNone
  DType result_dtype = DType::kFloat32;

  // Optional: states of a metric, to which the values of the batch are added before they are
  // rounded.
  RunningMean running;

  // Optional: the means of each scale and image, (scales, B).
  double* means = nullptr;

  // Room for the pooled images, a pyramid for each of the two tensors: pyramid_elements() of
  // ms_ssim_pyramid.h, aligned to 16 bytes, on the images' device.
  void* preds_pyramid = nullptr;
  void* target_pyramid = nullptr;
};

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Problem& problem);
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::ms_ssim
