// Strips: contrast, clamped images and windows without padding.
#include "ssim/ssim_strip.cuh"

namespace syncfree::ssim {

template cudaError_t launch_strips_as<StripTask::kAnything, GaussianWindow>(const Job<float>&,
                                                                            const StripUnits&,
                                                                            cudaStream_t);
template cudaError_t launch_strips_as<StripTask::kAnything, UniformWindow>(const Job<float>&,
                                                                           const StripUnits&,
                                                                           cudaStream_t);

}  // namespace syncfree::ssim
