// Walk path: gradients together with their loss, and which images take it.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {
namespace {

using Access = VectorPixelsOf<float>;

}  // namespace

// Half-precision gradients are excluded: they would be rounded before the incoming gradient scales
// them. Of float32 images in an aligned layout, only the shape decides, as for gradients without a
// loss; but as a pass for the loss alone is saved, walks pay off for smaller images too.
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
