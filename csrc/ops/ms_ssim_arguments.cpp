// Checks and conversions of multi-scale SSIM.
#include "ops/ms_ssim_arguments.h"

#include <algorithm>

#include "ms_ssim/ms_ssim_pyramid.h"

namespace syncfree::ops {
namespace {

// TorchMetrics' rules. They check kernel_size even for a Gaussian, which is sized by sigma.
void check_sizes(const Tensor& images, std::int64_t scales,
                 const std::vector<std::int64_t>& kernel_size) {
  if (scales < 1 || scales > ms_ssim::kMaxScales)
    fail_value("Expected argument `betas` to hold 1 to ", ms_ssim::kMaxScales, " numbers, but got ",
               scales, ".");
  const auto sizes = images.sizes();
  const std::int64_t height = sizes[sizes.size() - 2], width = sizes[sizes.size() - 1];
  const std::int64_t least = std::int64_t{1} << scales;
  if (height < least || width < least)
    fail_value("For a given number of `betas` parameters ", scales,
               ", the image height and width dimensions must be larger than or equal to ", least,
               ". Got images of shape ", shape_text(images),
               ". Use larger images or fewer `betas`.");
  const std::int64_t divisor = std::max<std::int64_t>(1, (scales - 1) * (scales - 1));
  const auto check = [&](const char* name, std::int64_t size, std::int64_t kernel) {
    if (size / divisor <= kernel - 1)
      fail_value("For a given number of `betas` parameters ", scales, " and kernel size ", kernel,
                 ", the image ", name, " must be larger than ", (kernel - 1) * divisor, ": ",
                 kernel * divisor, " or more. Got images of shape ", shape_text(images),
                 // A smaller `kernel_size` would not make a Gaussian smaller: sigma sizes it.
                 ". Use larger images or fewer `betas`, or `gaussian_kernel=False` with a smaller "
                 "`kernel_size`.");
  };
  if (kernel_size.empty()) return;
  check("height", height, kernel_size[0]);
  check("width", width, kernel_size[kernel_size.size() > 1 ? 1 : 0]);
}

}  // namespace

ms_ssim::Problem make_ms_ssim_problem(const Tensor& preds, const Tensor& target,
                                      const WindowArguments& window,
                                      std::optional<double> data_range,
                                      const std::optional<std::vector<double>>& interval, double k1,
                                      double k2, const std::vector<double>& betas,
                                      std::int64_t normalize, std::int64_t reduction) {
  check_images(preds, target);
  check_sizes(preds, static_cast<std::int64_t>(betas.size()), window.kernel_size);
  ms_ssim::Problem problem;
  problem.preds = volume_view(preds);
  problem.target = volume_view(target);
  problem.exponents.scales = static_cast<int>(betas.size());
  std::copy(betas.begin(), betas.end(), problem.exponents.beta);
  problem.exponents.normalize = static_cast<ms_ssim::Normalize>(normalize);
  set_axes(problem.axes, window, preds, problem.exponents.scales);
  problem.range = make_range(data_range, interval);
  problem.k1 = k1;
  problem.k2 = k2;
  problem.reduction = static_cast<Reduction>(reduction);
  problem.result_dtype = problem.preds.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  return problem;
}

Tensor make_value(const ms_ssim::Problem& problem, const Tensor& images) {
  const bool each = problem.reduction == Reduction::kNone;
  return empty_like_device({&problem.preds.size[0], each ? 1u : 0u}, problem.result_dtype, images);
}

Tensor make_pyramid(const ms_ssim::Problem& problem, const Tensor& images, bool wanted) {
  const std::int64_t elements = wanted ? ms_ssim::pyramid_elements(problem) : 0;
  return empty_like_device({&elements, 1}, ms_ssim::pooled_dtype(problem), images);
}

}  // namespace syncfree::ops
