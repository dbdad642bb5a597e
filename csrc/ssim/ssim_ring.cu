// Ring strips: where they run, and the launch of single scales. Kernels of tasks other than the
// value alone are compiled in files of their own, as each takes a while.
#include "ssim/ssim_ring.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_ring_strips_as<StripTask::kErrors>(const Job<float>&,
                                                                      const StripUnits&,
                                                                      cudaStream_t);
extern template cudaError_t launch_ring_strips_as<StripTask::kAnything>(const Job<float>&,
                                                                        const StripUnits&,
                                                                        cudaStream_t);

bool takes_ring_strips(StripWindow window) {
  return window == StripWindow::kGaussian &&
         has_ring_strips(current_device_info().code_architecture);
}

cudaError_t launch_ring_strips(const Job<float>& job, const StripUnits& units,
                               cudaStream_t stream) {
  if (job.has_more()) return launch_ring_strips_as<StripTask::kAnything>(job, units, stream);
  return job.has_errors() ? launch_ring_strips_as<StripTask::kErrors>(job, units, stream)
                          : launch_ring_strips_as<StripTask::kValue>(job, units, stream);
}

}  // namespace syncfree::ssim
