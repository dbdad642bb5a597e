// Strips: all scales of a pyramid but the last.
#include "ssim/ssim_strip.cuh"

namespace syncfree::ssim {

cudaError_t launch_strips_of_scale(const Job<float>& job, const StripUnits& units,
                                   cudaStream_t stream) {
  if (takes_ring_strips(StripWindow::kGaussian))
    return launch_ring_strips_of_scale(job, units, stream);
  return job.clamp.enabled
             ? launch_strips_as<StripTask::kClampedScale, GaussianWindow>(job, units, stream)
             : launch_strips_as<StripTask::kScale, GaussianWindow>(job, units, stream);
}

}  // namespace syncfree::ssim
