// Walk path: the kernels for gradients of values and errors.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {

template cudaError_t launch_backward_walks_as<true>(const BackwardJob<float>&, cudaStream_t);

}  // namespace syncfree::ssim
