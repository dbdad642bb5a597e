// Fast path on GPUs with TF32: the scales of a pyramid but the last.
#ifdef SYNCFREE_TENSOR_SSIM
#include "ssim/ssim_tensor.cuh"

namespace syncfree::ssim {

template cudaError_t launch_tensor_as<StripTask::kScale>(const Job<float>&, cudaStream_t);
template cudaError_t launch_tensor_as<StripTask::kClampedScale>(const Job<float>&, cudaStream_t);

}  // namespace syncfree::ssim
#endif
