// Fast path on GPUs with TF32: contrast, clamped images and windows without padding.
#ifdef SYNCFREE_TENSOR_SSIM
#include "ssim/ssim_tensor.cuh"

namespace syncfree::ssim {

template cudaError_t launch_tensor_as<StripTask::kAnything>(const Job<float>&, cudaStream_t);

}  // namespace syncfree::ssim
#endif
