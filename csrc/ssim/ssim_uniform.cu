// Uniform strips, with twelve warps a multiprocessor: where they run, and the launch. Kernels of
// tasks other than the value alone are compiled in a file of their own, as each takes a while.
#include "ssim/ssim_uniform.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_uniform_strips_as<StripTask::kAnything>(const Job<float>&,
                                                                           const StripUnits&,
                                                                           cudaStream_t);

bool takes_uniform_strips(StripWindow window, const Geometry& geometry) {
  if (window != StripWindow::kUniform) return false;
  const DeviceInfo device = current_device_info();
  if (!has_uniform_strips(device.code_architecture) ||
      device.shared_memory_per_block < static_cast<int>(kUniformWarps * sizeof(UniformMemory)))
    return false;
  // Reading 5 % more columns loses what is gained, a tenth of the time for a pixel (H200).
  const auto columns_read = [&](std::int64_t columns) {
    return (geometry.size[2] + columns - 1) / columns * columns;
  };
  return 25 * columns_read(kUniformColumns) <= 26 * columns_read(kStripColumns);
}

bool has_near_columns(const Image& image) {
  return std::abs(image.stride[4]) <= INT32_MAX / size_of(image.dtype);
}

cudaError_t launch_uniform_strips(const Job<float>& job, const StripUnits& units,
                                  cudaStream_t stream) {
  return job.has_errors() || job.has_more()
             ? launch_uniform_strips_as<StripTask::kAnything>(job, units, stream)
             : launch_uniform_strips_as<StripTask::kValue>(job, units, stream);
}

}  // namespace syncfree::ssim
