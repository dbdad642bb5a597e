// Strips: which problems they take, how images are cut, and the launch of single scales. Kernels of
// tasks other than the value alone are compiled in files of their own, as each takes a while.
#include <cstdint>

#include "ssim/rows_of_unit.h"
#include "ssim/ssim_ring_window.cuh"
#include "ssim/ssim_strip.cuh"
#include "ssim/ssim_uniform_rows.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_strips_as<StripTask::kErrors, GaussianWindow>(const Job<float>&,
                                                                                 const StripUnits&,
                                                                                 cudaStream_t);
extern template cudaError_t launch_strips_as<StripTask::kAnything, GaussianWindow>(
    const Job<float>&, const StripUnits&, cudaStream_t);
extern template cudaError_t launch_strips_as<StripTask::kAnything, UniformWindow>(const Job<float>&,
                                                                                  const StripUnits&,
                                                                                  cudaStream_t);

namespace {

template <class Taps>
bool has_window(const Problem& problem) {
  // Without padding the sums leave the border out, but the map would contain it.
  const int pad = problem.axes[1].pad;
  if (pad != Taps::kHalo && (pad != 0 || problem.map != nullptr)) return false;
  for (int axis : {1, 2}) {
    const Axis& window = problem.axes[axis];
    const std::int64_t size = problem.preds.size[axis + 2];
    if (window.taps != Taps::kTaps || window.pad != pad || window.sigma != Taps::kSigma ||
        size <= Taps::kHalo || size >= (1 << 28))
      return false;
  }
  return true;
}

}  // namespace

StripWindow strip_window(const Problem& problem) {
  const DType dtype = problem.preds.dtype;
  if (problem.preds.size[2] != 1 || problem.axes[0].taps != 1 || problem.axes[0].pad != 0 ||
      dtype != problem.target.dtype ||
      (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16 &&
       dtype != DType::kUInt8) ||
      !has_normal_denominators(problem))
    return StripWindow::kNone;
  if (has_window<GaussianWindow>(problem)) return StripWindow::kGaussian;
  // Pyramids have kernels for the default window only.
  if (has_window<UniformWindow>(problem) && problem.pooled_preds == nullptr)
    return StripWindow::kUniform;
  return StripWindow::kNone;
}

double tap_sum_of(StripWindow window) {
  return window == StripWindow::kUniform ? kTapSumOf<UniformWindow> : kTapSumOf<GaussianWindow>;
}

double strip_tap_sum(StripWindow window) {
  return takes_ring_strips(window) ? kTapSumOf<RingWindow> : tap_sum_of(window);
}

StripUnits strip_units(StripWindow window, const Geometry& geometry) {
  const bool uniform = takes_uniform_strips(window, geometry);
  const std::int64_t columns = uniform ? kUniformColumns : kStripColumns;
  const std::int64_t strips = (geometry.size[2] + columns - 1) / columns;
  const int warps = uniform ? kUniformWarps : kStripWarps * kStripBlocksPerMultiprocessor;
  const int rows = rows_of_unit(geometry.channels * strips, geometry.size[1], warps / 4);
  return {strips, (geometry.size[1] + rows - 1) / rows, rows};
}

cudaError_t launch_strips(const Job<float>& job, const StripUnits& units, StripWindow window,
                          cudaStream_t stream) {
  if (takes_ring_strips(window)) return launch_ring_strips(job, units, stream);
  if (takes_uniform_strips(window, job.geometry)) return launch_uniform_strips(job, units, stream);
  if (window == StripWindow::kUniform)
    return job.has_errors() || job.has_more()
               ? launch_strips_as<StripTask::kAnything, UniformWindow>(job, units, stream)
               : launch_strips_as<StripTask::kValue, UniformWindow>(job, units, stream);
  if (job.has_more())
    return launch_strips_as<StripTask::kAnything, GaussianWindow>(job, units, stream);
  return job.has_errors() ? launch_strips_as<StripTask::kErrors, GaussianWindow>(job, units, stream)
                          : launch_strips_as<StripTask::kValue, GaussianWindow>(job, units, stream);
}

}  // namespace syncfree::ssim
