// Gradients of large images with the mean value of the batch: which images these are.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {
namespace {

using Access = VectorPixelsOf<float>;

}  // namespace

// Half-precision gradients are rounded, and must have been scaled by what arrives before.
bool walks_give_values(const BackwardJob<float>& job) {
  return job.preds.dtype == DType::kFloat32 && Access::apply(job) && walks_fit<1, true>();
}

cudaError_t launch_backward_walks_with_values(const BackwardJob<float>& job,
                                              const WalkResults& results, cudaStream_t stream) {
  return job.grad_absolute_error.arrives()
             ? start_walks<Access, 1, true, true>(job, results, stream)
             : start_walks<Access, 1, false, true>(job, results, stream);
}

}  // namespace syncfree::ssim
