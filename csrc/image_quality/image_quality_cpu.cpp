// Finishes PSNR and mean absolute error on the CPU.
#include "image_quality/image_quality.h"
#include "image_quality/image_quality_math.h"

namespace syncfree::image_quality {

void run(const Problem& problem, ParallelFor) {
  const psnr::Scale scale = decibel_scale(problem);
  double squared = 0.0, absolute = 0.0;
  for (std::int64_t i = 0; i < problem.images; ++i) {
    squared += problem.squared_error[i];
    absolute += problem.absolute_error[i];
    if (problem.reduction == Reduction::kNone)
      store_errors(problem, scale, i, problem.squared_error[i], problem.absolute_error[i],
                   problem.elements);
  }
  if (problem.reduction != Reduction::kNone)
    store_errors(problem, scale, 0, squared, absolute, problem.images * problem.elements);
}

}  // namespace syncfree::image_quality
