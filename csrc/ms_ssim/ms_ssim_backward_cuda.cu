// The gradient of multi-scale SSIM on CUDA: a single block that computes the incoming gradient of
// each mean, and the launches of one SSIM gradient a scale, from the coarsest to the finest.
#include <algorithm>
#include <cstddef>

#include "ms_ssim/ms_ssim_backward_math.h"

namespace syncfree::ms_ssim {
namespace {

constexpr int kThreads = 256;

// The powers first, since each is a factor of several slopes.
__global__ void __launch_bounds__(kThreads)
    mean_gradient_kernel(const __grid_constant__ Exponents exponents, std::int64_t images,
                         const double* means, const __grid_constant__ ssim::Upstream arriving,
                         double share, double* factors, double* gradients) {
  const std::int64_t count = exponents.scales * images;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads)
    factors[i] = factor(exponents, static_cast<int>(i / images), means[i]);
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const std::int64_t scale = i / images, image = i - scale * images;
    gradients[i] = share * arriving.of(image) *
                   value_slope(exponents, static_cast<int>(scale), image, images, means, factors);
  }
}

// Scratch memory begins with the gradients of the means and the factors. Behind them is the scratch
// that the SSIM launches use in turn.
std::size_t mean_bytes(const BackwardProblem& problem) {
  const auto means = static_cast<std::size_t>(mean_count(problem.forward));
  return aligned_to_workspace(2 * means * sizeof(double));
}

}  // namespace

// The SSIM launches use the same zeroed memory in turn: each leaves its tickets zero for the next.
WorkspaceSize workspace_size(const BackwardProblem& problem) {
  WorkspaceSize most;
  for (int scale = 0; scale < problem.forward.exponents.scales; ++scale) {
    // The size depends on which gradients arrive, not on where they are.
    double gradients;
    const WorkspaceSize size = ssim::workspace_size(scale_problem(problem, scale, &gradients));
    most.zeroed = std::max(most.zeroed, size.zeroed);
    most.scratch = std::max(most.scratch, size.scratch);
  }
  most.scratch += mean_bytes(problem);
  return most;
}

cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace,
                   cudaStream_t stream) {
  const Problem& forward = problem.forward;
  double* const gradients = static_cast<double*>(workspace.scratch);
  const Workspace for_ssim{workspace.zeroed,
                           static_cast<std::byte*>(workspace.scratch) + mean_bytes(problem)};
  mean_gradient_kernel<<<1, kThreads, 0, stream>>>(
      forward.exponents, forward.preds.size[0], forward.means, ssim::upstream(problem.grad_value),
      image_share(forward), gradients + mean_count(forward), gradients);
  cudaError_t error = cudaGetLastError();
  for (int scale = forward.exponents.scales - 1; scale >= 0 && error == cudaSuccess; --scale)
    error = ssim::launch(scale_problem(problem, scale, gradients), for_ssim, stream);
  return error;
}

}  // namespace syncfree::ms_ssim
