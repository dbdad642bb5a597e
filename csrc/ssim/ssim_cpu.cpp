// SSIM on the CPU: geometry, choice of the path, threads, and the final sums in fixed order.
#include <cmath>
#include <iterator>
#include <type_traits>
#include <utility>

#include "core/isa.h"
#include "core/store_as.h"
#include "ssim/ssim_cpu.h"

#define SYNCFREE_KERNEL "ssim/ssim_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::ssim {
namespace {

const Kernels& kernels() {
  return select_isa(&baseline::ssim_cpu::kernels, &avx2::ssim_cpu::kernels,
                    &avx512::ssim_cpu::kernels)();
}

bool computes_in_double(const Problem& problem) {
  return problem.preds.dtype == DType::kFloat64;
}

// The vertical pass of the fast path computes four outputs at once and needs two rows that have
// weight in the windows of all four: windows of 7 taps or more. By-products need as many outputs as
// there are pixels.
bool fits_stream(const Problem& problem) {
  const bool by_products = problem.squared_error != nullptr || problem.absolute_error != nullptr ||
                           problem.pooled_preds != nullptr;
  const auto fits = [&](const Axis& axis) {
    return axis.taps % 2 == 1 && axis.taps >= 7 && axis.taps <= kMaxStreamTaps &&
           (axis.pad == axis.taps / 2 || (axis.pad == 0 && !by_products));
  };
  const Axis& depth = problem.axes[kDepth];
  return !computes_in_double(problem) && problem.preds.size[2] == 1 && depth.taps == 1 &&
         depth.pad == 0 && fits(problem.axes[kHeight]) && fits(problem.axes[kWidth]);
}

// Length of a piece when an axis is cut evenly: near `wanted`, and a multiple of 16.
std::int64_t even_piece(std::int64_t size, std::int64_t wanted) {
  const std::int64_t pieces = std::max<std::int64_t>((size + wanted / 2) / wanted, 1);
  return ((size + pieces - 1) / pieces + 15) / 16 * 16;
}

Plan make_plan(const Problem& problem, double range) {
  Plan plan;
  plan.problem = &problem;
  plan.constants = make_constants<double>(range, problem.k1, problem.k2);
  for (AxisName name : {kDepth, kHeight, kWidth}) {
    AxisPlan& axis = plan.axes[name];
    axis.input = problem.preds.size[2 + name];
    axis.output = map_size(problem.axes[name], axis.input);
    axis.taps = problem.axes[name].taps;
    axis.pad = problem.axes[name].pad;
    axis.weights.resize(axis.taps);
    fill_taps(problem.axes[name], axis.weights.data());
  }
  AxisPlan& height = plan.axes[kHeight];
  AxisPlan& width = plan.axes[kWidth];
  if (fits_stream(problem)) {
    height.piece = 32;
    width.piece =
        even_piece(width.output, std::max<std::int64_t>(kRingFloats / (4 * height.taps), 64));
  } else {
    height.piece = std::clamp(height.taps, 16, 64);
    width.piece = even_piece(width.output, 256);
  }
  return plan;
}

// Adds up the units of each image in order, then the images.
void finish(const Plan& plan) {
  const Problem& problem = *plan.problem;
  const std::int64_t batch = problem.preds.size[0], channels = problem.preds.size[1];
  double map_count = static_cast<double>(channels), crop_count = map_count;
  for (const AxisPlan& axis : plan.axes) {
    map_count *= static_cast<double>(axis.output);
    crop_count *= static_cast<double>(std::max<std::int64_t>(axis.output - 2 * axis.pad, 0));
  }
  const double scale = plan.constants.scale;
  const std::int64_t units = channels * plan.units_per_plane();
  double total = 0.0;
  for (std::int64_t image = 0; image < batch; ++image) {
    UnitTotals sums;
    for (std::int64_t i = image * units; i < (image + 1) * units; ++i) {
      sums.deficit += plan.partial[i].deficit;
      sums.contrast_deficit += plan.partial[i].contrast_deficit;
      sums.squared_error += plan.partial[i].squared_error;
      sums.absolute_error += plan.partial[i].absolute_error;
    }
    const double similarity = mean_from_deficit(sums.deficit, map_count);
    total += similarity;
    if (problem.value != nullptr && problem.reduction == Reduction::kNone)
      store_as(problem.value, problem.value_dtype(), image, similarity);
    if (problem.contrast != nullptr)
      store_as(problem.contrast, problem.result_dtype, image,
               mean_from_deficit(sums.contrast_deficit, crop_count));
    if (problem.squared_error != nullptr)
      problem.squared_error[image] = sums.squared_error / (scale * scale);
    if (problem.absolute_error != nullptr)
      problem.absolute_error[image] = sums.absolute_error / scale;
  }
  if (problem.value == nullptr || problem.reduction == Reduction::kNone) return;
  add_batch(problem.running, total, batch);
  if (problem.reduction == Reduction::kMean) total /= static_cast<double>(batch);
  store_as(problem.value, problem.value_dtype(), 0, total);
}

}  // namespace

void run(const Problem& problem, ParallelFor parallel_for) {
  Plan plan = make_plan(problem, data_range(problem, parallel_for));
  const std::int64_t planes = problem.preds.size[0] * problem.preds.size[1];
  std::vector<UnitTotals> partial(planes * plan.units_per_plane());
  plan.partial = partial.data();
  const auto units = fits_stream(problem) ? kernels().stream : kernels().general;
  const std::int64_t unit_size = plan.axes[kHeight].piece * plan.axes[kWidth].piece;
  constexpr std::int64_t kPixelsWorthAThread = 1 << 14;
  parallel_ranges(parallel_for, 0, std::ssize(partial),
                  std::max<std::int64_t>(kPixelsWorthAThread / unit_size, 1),
                  [&](std::int64_t begin, std::int64_t end) { units(plan, begin, end); });
  finish(plan);
}

}  // namespace syncfree::ssim
