// The vector kernel of the gradient, built once for each instruction set through
// core/for_each_isa.h. Separable loops in double: filters along width, height and depth, the
// derivative of each window, and the transposed filters along depth, height and width.
namespace ssim_backward_cpu {
namespace {

using namespace ::syncfree::ssim;

// First, since the headers below use it.
#include "ssim/ssim_cpu_vectors.h"

#include "ssim/ssim_cpu_rows.h"

#include "ssim/ssim_backward_cpu_correlate.h"

inline Lanes<double>::Vector inverse_of(const Lanes<double>::Vector& x) {
  return 1.0 / x;
}

#include "ssim/ssim_backward_terms.h"

#include "ssim/ssim_backward_cpu_store.h"

#include "ssim/ssim_backward_cpu_unit.h"

}  // namespace

void backward_units(const BackwardPlan& plan, std::int64_t begin, std::int64_t end) {
  Backward backward(plan);
  for (std::int64_t i = begin; i < end; ++i) {
    Unit unit;
    std::int64_t rest = i;
    for (AxisName axis : {kWidth, kHeight, kDepth}) {
      unit.piece[axis] = rest % plan.axes[axis].pieces();
      rest /= plan.axes[axis].pieces();
    }
    unit.plane = rest;
    backward.run(unit);
  }
}

}  // namespace ssim_backward_cpu
