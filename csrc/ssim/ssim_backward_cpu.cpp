// The gradient of SSIM on the CPU: geometry and threads.
#include <type_traits>

#include "core/isa.h"
#include "core/store_as.h"
#include "ssim/ssim_backward_cpu.h"

#define SYNCFREE_KERNEL "ssim/ssim_backward_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::ssim {
namespace {

using TakeUnits = void(const BackwardPlan& plan, std::int64_t begin, std::int64_t end);

TakeUnits* backward_units() {
  return select_isa(&baseline::ssim_backward_cpu::backward_units,
                    &avx2::ssim_backward_cpu::backward_units,
                    &avx512::ssim_backward_cpu::backward_units);
}

// Units are large compared with the window, so that few windows are computed twice, and small
// enough that the moments of a unit stay in a second-level cache.
BackwardPlan make_plan(const BackwardProblem& problem, double range) {
  const bool volume = problem.forward.preds.size[2] > 1;
  const std::int64_t pixels[3] = {16, volume ? 32 : 64, volume ? 64 : 128};
  BackwardPlan plan;
  plan.problem = &problem;
  plan.constants = make_constants<double>(range, problem.forward.k1, problem.forward.k2);
  plan.shares = window_shares(problem.forward);
  for (AxisName name : {kDepth, kHeight, kWidth}) {
    BackwardAxisPlan& axis = plan.axes[name];
    static_cast<BackwardAxis&>(axis) = backward_axis(problem.forward, name);
    axis.piece = std::max<std::int64_t>(pixels[name], 2 * axis.taps);
    axis.weights.resize(axis.taps);
    fill_taps(problem.forward.axes[name], axis.weights.data());
    axis.turned.assign(axis.weights.rbegin(), axis.weights.rend());
  }
  return plan;
}

}  // namespace

bool run_gives_loss(const BackwardProblem&) {
  return false;
}

void run(const BackwardProblem& problem, ParallelFor parallel_for) {
  if (problem.forward.preds.numel() == 0) return;
  const BackwardPlan plan = make_plan(problem, data_range(problem.forward, parallel_for));
  const TensorView& images = problem.forward.preds;
  const std::int64_t units = images.size[0] * images.size[1] * plan.units_per_plane();
  std::int64_t pixels = 1;
  for (const BackwardAxisPlan& axis : plan.axes) pixels *= std::min(axis.piece, axis.size);
  constexpr std::int64_t kPixelsWorthAThread = 1 << 12;
  parallel_ranges(
      parallel_for, 0, units, std::max<std::int64_t>(kPixelsWorthAThread / pixels, 1),
      [&](std::int64_t begin, std::int64_t end) { backward_units()(plan, begin, end); });
}

}  // namespace syncfree::ssim
