// Strips: the value together with squared and absolute errors, as `image_quality` asks for.
#include "ssim/ssim_strip.cuh"

namespace syncfree::ssim {

template cudaError_t launch_strips_as<StripTask::kErrors, GaussianWindow>(const Job<float>&,
                                                                          const StripUnits&,
                                                                          cudaStream_t);

}  // namespace syncfree::ssim
