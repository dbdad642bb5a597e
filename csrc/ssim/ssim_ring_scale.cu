// Ring strips: all scales of a pyramid but the last.
#include "ssim/ssim_ring.cuh"

namespace syncfree::ssim {

cudaError_t launch_ring_strips_of_scale(const Job<float>& job, const StripUnits& units,
                                        cudaStream_t stream) {
  return job.clamp.enabled ? launch_ring_strips_as<StripTask::kClampedScale>(job, units, stream)
                           : launch_ring_strips_as<StripTask::kScale>(job, units, stream);
}

}  // namespace syncfree::ssim
