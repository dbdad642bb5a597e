// Uniform strips: errors, contrast, clamped images and windows without padding.
#include "ssim/ssim_uniform.cuh"

namespace syncfree::ssim {

template cudaError_t launch_uniform_strips_as<StripTask::kAnything>(const Job<float>&,
                                                                    const StripUnits&,
                                                                    cudaStream_t);

}  // namespace syncfree::ssim
