// Strips whose rows wait in shared memory: the scales of a pyramid but the last.
#include "ssim/ssim_ring.cuh"

namespace syncfree::ssim {

cudaError_t launch_ring_strips_of_scale(const Job<float>& job, cudaStream_t stream) {
  return job.clamp.enabled ? launch_ring_strips_as<StripTask::kClampedScale>(job, stream)
                           : launch_ring_strips_as<StripTask::kScale>(job, stream);
}

}  // namespace syncfree::ssim
