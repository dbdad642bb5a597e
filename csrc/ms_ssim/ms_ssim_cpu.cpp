// Multi-scale SSIM on the CPU: one SSIM a scale, and the product.
#include <vector>

#include "core/store_as.h"
#include "ms_ssim/ms_ssim_math.h"
#include "ms_ssim/ms_ssim_pyramid.h"

namespace syncfree::ms_ssim {

void run(const Problem& problem, ParallelFor parallel_for) {
  const std::int64_t images = problem.preds.size[0];
  const int scales = problem.exponents.scales;
  std::vector<double> room(problem.means == nullptr ? mean_count(problem) : 0);
  double* const means = problem.means == nullptr ? room.data() : problem.means;
  for (int scale = 0; scale < scales && images > 0; ++scale)
    ssim::run(scale_problem(problem, scale, means), parallel_for);

  double total = 0.0;
  for (std::int64_t image = 0; image < images; ++image) {
    double value = 1.0;
    for (int scale = 0; scale < scales; ++scale)
      value *= factor(problem.exponents, scale, means[scale * images + image]);
    total += value;
    if (problem.reduction == Reduction::kNone)
      store_as(problem.value, problem.result_dtype, image, value);
  }
  add_batch(problem.running, total, images);
  if (problem.reduction == Reduction::kNone) return;
  if (problem.reduction == Reduction::kMean) total /= static_cast<double>(images);
  store_as(problem.value, problem.result_dtype, 0, total);
}

}  // namespace syncfree::ms_ssim
