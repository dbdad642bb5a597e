// Ring path of the gradient: which images take it. Kernels for gradients of errors are compiled in
// a file of their own, since each kernel takes a while to compile.
#include "ssim/ssim_backward_ring_launch.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_gradient_rings_as<true>(const BackwardJob<float>&,
                                                           const WalkResults&, cudaStream_t);

// Of the images that rings support, the shape alone decides, as for walks: strips must be mostly
// full, and the rows many compared with the 22 more that each piece computes.
bool gradient_rings_apply(const BackwardJob<float>& job) {
  constexpr std::int64_t kLeast = 192;
  const std::int64_t height = job.axes[1].size, width = job.axes[2].size;
  if (height < kLeast || width < kLeast) return false;
  const std::int64_t computed =
      std::int64_t{kStripColumns} * cut_for_gradient_rings(height, width).strips;
  return has_ring_strips(current_device_info().code_architecture) && 4 * width >= 3 * computed &&
         job.axes[1].pad == kReach && !job.grad_contrast.arrives();
}

double gradient_ring_tap_sum() {
  return kTapSumOf<RingWindow>;
}

cudaError_t launch_gradient_rings(const BackwardJob<float>& job, const WalkResults& results,
                                  cudaStream_t stream) {
  const bool has_errors = job.grad_squared_error.arrives() || job.grad_absolute_error.arrives();
  return has_errors ? launch_gradient_rings_as<true>(job, results, stream)
                    : launch_gradient_rings_as<false>(job, results, stream);
}

}  // namespace syncfree::ssim
