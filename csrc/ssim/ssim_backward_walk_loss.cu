// Gradients with their loss: of which images.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {
namespace {

using Access = VectorPixelsOf<float>;

}  // namespace

// Half-precision gradients are rounded, and must have been scaled by what arrives before. By the
// shape of the image alone, as for gradients without a loss, but the pass that finds the loss by
// itself is saved, so that less is large.
bool walks_give_loss(const BackwardJob<float>& job) {
  constexpr std::int64_t kLeast = 224;
  if (job.preds.dtype != DType::kFloat32 || !Access::apply(job)) return false;
  return gradient_rings_apply(job) ||
         (job.axes[1].size >= kLeast && job.axes[2].size >= kLeast && walks_fit<1, true>());
}

cudaError_t launch_backward_walks_with_loss(const BackwardJob<float>& job,
                                            const WalkResults& results, cudaStream_t stream) {
  return job.grad_absolute_error.arrives()
             ? start_walks<Access, 1, true, true>(job, results, stream)
             : start_walks<Access, 1, false, true>(job, results, stream);
}

}  // namespace syncfree::ssim
