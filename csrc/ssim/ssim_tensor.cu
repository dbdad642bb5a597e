// Fast path on GPUs with TF32: the value, alone and with errors beside it.
#ifdef SYNCFREE_TENSOR_SSIM
#include "ssim/ssim_tensor.cuh"

namespace syncfree::ssim {

template cudaError_t launch_tensor_as<StripTask::kValue>(const Job<float>&, cudaStream_t);
template cudaError_t launch_tensor_as<StripTask::kErrors>(const Job<float>&, cudaStream_t);

}  // namespace syncfree::ssim
#endif
