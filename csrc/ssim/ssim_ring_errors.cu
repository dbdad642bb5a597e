// Ring strips: the value together with squared and absolute errors, as `image_quality` asks for.
#include "ssim/ssim_ring.cuh"

namespace syncfree::ssim {

template cudaError_t launch_ring_strips_as<StripTask::kErrors>(const Job<float>&, const StripUnits&,
                                                               cudaStream_t);

}  // namespace syncfree::ssim
