// The gradient of multi-scale SSIM on the CPU: the incoming gradient of each mean, and one SSIM
// gradient a scale, from the coarsest to the finest.
#include <vector>

#include "ms_ssim/ms_ssim_backward_math.h"

namespace syncfree::ms_ssim {
namespace {

std::vector<double> mean_gradients(const BackwardProblem& problem) {
  const Exponents& exponents = problem.forward.exponents;
  const double* means = problem.forward.means;
  const std::int64_t images = problem.forward.preds.size[0];
  const ssim::Upstream arriving = ssim::upstream(problem.grad_value);
  const double share = image_share(problem.forward);
  std::vector<double> factors(mean_count(problem.forward)), gradients(factors.size());
  for (std::int64_t i = 0; i < mean_count(problem.forward); ++i)
    factors[i] = factor(exponents, static_cast<int>(i / images), means[i]);
  for (std::int64_t i = 0; i < mean_count(problem.forward); ++i) {
    const int scale = static_cast<int>(i / images);
    const std::int64_t image = i % images;
    gradients[i] = share * arriving.of(image) *
                   value_slope(exponents, scale, image, images, means, factors.data());
  }
  return gradients;
}

}  // namespace

void run(const BackwardProblem& problem, ParallelFor parallel_for) {
  const std::vector<double> gradients = mean_gradients(problem);
  for (int scale = problem.forward.exponents.scales - 1; scale >= 0; --scale)
    ssim::run(scale_problem(problem, scale, gradients.data()), parallel_for);
}

}  // namespace syncfree::ms_ssim
