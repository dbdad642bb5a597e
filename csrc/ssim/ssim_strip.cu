// Fast path: which images it takes, how they are cut, and its launch.
#include <algorithm>

#include "core/device_info.h"
#include "ssim/ssim_strip.cuh"

namespace syncfree::ssim {
namespace {

// Narrower images leave most lanes of a strip idle.
constexpr std::int64_t kNarrowest = 48;

// Small images need small units to occupy the GPU; a large one should not have too many slots to
// add up in the end.
constexpr std::int64_t kMostUnits = 2048;

template <class Rows, bool kExtras>
void start(const Job<float>& job, const StripUnits& units, cudaStream_t stream) {
  const std::int64_t total = job.results.images * job.results.units_per_image;
  const std::int64_t blocks =
      std::min<std::int64_t>((total + kStripWarps - 1) / kStripWarps,
                             kStripBlocksPerMultiprocessor * current_device_info().multiprocessors);
  strip_kernel<Rows, kExtras>
      <<<static_cast<unsigned>(blocks), kStripThreads, 0, stream>>>(job, units);
}

template <class T>
void start(const Job<float>& job, cudaStream_t stream) {
  const StripUnits units = strip_units(job.geometry);
  const double* const* slots = job.results.slots;
  const bool extras = job.clamp.enabled || job.map != nullptr ||
                      slots[kContrastDeficit] != nullptr || slots[kSquaredError] != nullptr ||
                      slots[kAbsoluteError] != nullptr;
  const auto start_with = [&]<class Rows>(TypeTag<Rows>) {
    extras ? start<Rows, true>(job, units, stream) : start<Rows, false>(job, units, stream);
  };
  if (VectorRows<T>::apply(job.preds, job.target, job.geometry))
    start_with(TypeTag<VectorRows<T>>{});
  else
    start_with(TypeTag<StridedRows<T>>{});
}

}  // namespace

double strip_tap_sum() {
  constexpr StripTaps kTaps;
  return kTaps.row_sum * kTaps.row_sum;
}

bool strips_apply(const Problem& problem) {
  const auto is_default = [](const Axis& axis) {
    return axis.taps == StripTaps::kTaps && axis.pad == kHalo && axis.sigma == StripTaps::kSigma;
  };
  const TensorView& images = problem.preds;
  const DType dtype = images.dtype;
  return images.size[2] == 1 && problem.axes[0].taps == 1 && problem.axes[0].pad == 0 &&
         is_default(problem.axes[1]) && is_default(problem.axes[2]) && images.size[3] > kHalo &&
         images.size[3] < (1 << 28) && images.size[4] >= kNarrowest && images.size[4] < (1 << 28) &&
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
  switch (job.preds.dtype) {
    case DType::kFloat16:
      start<Half>(job, stream);
      break;
    case DType::kBFloat16:
      start<BFloat16>(job, stream);
      break;
    case DType::kUInt8:
      start<std::uint8_t>(job, stream);
      break;
    default:
      start<float>(job, stream);
  }
  return cudaGetLastError();
}

}  // namespace syncfree::ssim
