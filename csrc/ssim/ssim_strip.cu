// Fast path: which images it takes, how they are cut, and the launch of single scales.
#include "ssim/ssim_strip.cuh"

namespace syncfree::ssim {
namespace {

// Small images need small units to occupy the GPU; a large one should not have too many slots to
// add up in the end.
constexpr std::int64_t kMostUnits = 2048;

}  // namespace

double strip_tap_sum() {
  constexpr StripTaps kTaps;
  return kTaps.row_sum * kTaps.row_sum;
}

bool strips_apply(const Problem& problem) {
  // Without padding the border is left out of the sums, but a map would have it.
  const int pad = problem.axes[1].pad;
  const bool pads = pad == kHalo || (pad == 0 && problem.map == nullptr);
  const auto is_default = [&](const Axis& axis) {
    return axis.taps == StripTaps::kTaps && axis.pad == pad && axis.sigma == StripTaps::kSigma;
  };
  const TensorView& images = problem.preds;
  const DType dtype = images.dtype;
  return pads && images.size[2] == 1 && problem.axes[0].taps == 1 && problem.axes[0].pad == 0 &&
         is_default(problem.axes[1]) && is_default(problem.axes[2]) && images.size[3] > kHalo &&
         images.size[3] < (1 << 28) && images.size[4] > kHalo && images.size[4] < (1 << 28) &&
         dtype == problem.target.dtype &&
         (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
          dtype == DType::kUInt8);
}

StripUnits strip_units(const Geometry& geometry) {
  const std::int64_t strips = (geometry.size[2] + kStripColumns - 1) / kStripColumns;
  const auto blocks = [&](int rows) { return (geometry.size[1] + rows - 1) / rows; };
  int rows = 8;
  while (rows < 32 && geometry.channels * strips * blocks(rows) > kMostUnits) rows *= 2;
  return {strips, blocks(rows), rows};
}

cudaError_t launch_strips(const Job<float>& job, cudaStream_t stream) {
  const double* const* slots = job.results.slots;
  const bool value_alone = !job.leaves_border_out() && !job.clamp.enabled && job.map == nullptr &&
                           slots[kContrastDeficit] == nullptr && slots[kSquaredError] == nullptr &&
                           slots[kAbsoluteError] == nullptr;
  return value_alone ? launch_strips_as<StripTask::kValue>(job, stream)
                     : launch_strips_as<StripTask::kAnything>(job, stream);
}

}  // namespace syncfree::ssim
