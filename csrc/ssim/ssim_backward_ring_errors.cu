// Ring path: the kernels for gradients of values and errors.
#include "ssim/ssim_backward_ring_launch.cuh"

namespace syncfree::ssim {

template cudaError_t launch_gradient_rings_as<true>(const BackwardJob<float>&, const WalkResults&,
                                                    cudaStream_t);

}  // namespace syncfree::ssim
