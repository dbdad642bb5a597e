// Gradients of values and errors of large images.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {

template cudaError_t launch_backward_walks_as<true>(const BackwardJob<float>&, cudaStream_t);

}  // namespace syncfree::ssim
