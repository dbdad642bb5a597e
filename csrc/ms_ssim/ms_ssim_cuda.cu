// Multi-scale SSIM on CUDA: an SSIM launch for each large scale; for the small scales, launches
// that pool up to four of them each, and one SSIM launch for all; and a single block that
// multiplies.
#include <algorithm>
#include <array>
#include <cstddef>

#include "core/block_sum.cuh"
#include "core/early_launch.cuh"
#include "core/store_as.h"
#include "ms_ssim/ms_ssim_math.h"
#include "ms_ssim/ms_ssim_pool.h"
#include "ms_ssim/ms_ssim_pyramid.h"

namespace syncfree::ms_ssim {
namespace {

constexpr int kThreads = 256;

struct Results {
  void* value;
  DType dtype;
  Reduction reduction;
  RunningMean running;
  std::int64_t images;
};

// The powers first, each by a thread of its own since they take longest.
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(const __grid_constant__ Exponents exponents, const double* means,
                    double* factors, Results results) {
  wait_for_kernel_ahead();
  const std::int64_t images = results.images;
  for (std::int64_t i = threadIdx.x; i < exponents.scales * images; i += kThreads)
    factors[i] = factor(exponents, static_cast<int>(i / images), means[i]);
  __syncthreads();
  double sum = 0.0;
  for (std::int64_t image = threadIdx.x; image < images; image += kThreads) {
    double value = 1.0;
    for (int scale = 0; scale < exponents.scales; ++scale) value *= factors[scale * images + image];
    sum += value;
    if (results.reduction == Reduction::kNone) store_as(results.value, results.dtype, image, value);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x != 0) return;
  add_batch(results.running, sum, images);
  if (results.reduction == Reduction::kNone) return;
  if (results.reduction == Reduction::kMean) sum /= static_cast<double>(images);
  store_as(results.value, results.dtype, 0, sum);
}

// Scratch memory begins with the factors, and with the means if the caller does not want them.
// Behind them is the scratch that the SSIM launches use in turn.
std::size_t mean_bytes(const Problem& problem) {
  return aligned_to_workspace(2 * static_cast<std::size_t>(mean_count(problem)) * sizeof(double));
}

// The scales that share an SSIM launch: their images are small, and pooled beforehand.
struct JointScales {
  std::array<ssim::Problem, ssim::kMostJointScales> problems;
  int first;  // the finest of these scales; the number of scales if there are none
  int count = 0;

  JointScales(const Problem& problem, double* means) : first(problem.exponents.scales) {
    for (const int scales = first; count < ssim::kMostJointScales && first > 0; ++count) {
      ssim::Problem scale = scale_problem(problem, first - 1, means);
      scale.pooled_preds = scale.pooled_target = nullptr;
      if (!ssim::can_join(scale)) break;
      problems[static_cast<std::size_t>(scales - first)] = scale;
      --first;
    }
    std::reverse(problems.begin(), problems.begin() + count);
  }
};

}  // namespace

// The SSIM launches use the same zeroed memory in turn: each leaves its tickets zero for the next.
WorkspaceSize workspace_size(const Problem& problem) {
  // The size depends on which results are wanted, not on where they go.
  double means;
  const JointScales joint(problem, &means);
  WorkspaceSize most = ssim::joint_workspace_size(joint.problems.data(), joint.count);
  for (int scale = 0; scale < joint.first; ++scale) {
    const WorkspaceSize size = ssim::workspace_size(scale_problem(problem, scale, &means));
    most.zeroed = std::max(most.zeroed, size.zeroed);
    most.scratch = std::max(most.scratch, size.scratch);
  }
  most.scratch += mean_bytes(problem);
  return most;
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream) {
  double* const factors = static_cast<double*>(workspace.scratch);
  double* const means = problem.means == nullptr ? factors + mean_count(problem) : problem.means;
  const Workspace for_ssim{workspace.zeroed,
                           static_cast<std::byte*>(workspace.scratch) + mean_bytes(problem)};
  const std::int64_t images = problem.preds.size[0];
  const JointScales joint(problem, means);
  for (int scale = 0; scale < joint.first && images > 0; ++scale) {
    const cudaError_t error = ssim::launch(scale_problem(problem, scale, means), for_ssim, stream);
    if (error != cudaSuccess) return error;
  }
  if (joint.count > 0) {
    cudaError_t error = pool_scales(problem, joint.first, stream);
    if (error == cudaSuccess)
      error = ssim::launch_jointly(joint.problems.data(), joint.count, for_ssim, stream);
    if (error != cudaSuccess) return error;
  }
  return launch_early(
      multiply_kernel, 1, kThreads, 0, stream, problem.exponents, means, factors,
      {problem.value, problem.result_dtype, problem.reduction, problem.running, images});
}

}  // namespace syncfree::ms_ssim
