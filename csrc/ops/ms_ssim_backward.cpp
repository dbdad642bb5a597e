// torch.ops.syncfree.multiscale_ssim_with_scales and multiscale_ssim_backward
#include "ms_ssim/ms_ssim_backward.h"

#include <algorithm>
#include <tuple>

#include "ms_ssim/ms_ssim_pyramid.h"
#include "ops/backend.h"
#include "ops/gradient.h"
#include "ops/ms_ssim_arguments.h"

namespace syncfree::ops {
namespace {

using ms_ssim::BackwardProblem;

std::vector<std::int64_t> mean_sizes(const ms_ssim::Problem& problem) {
  return {problem.exponents.scales, problem.preds.size[0]};
}

// Returns the value, and what its gradient needs besides the images: the means of all scales,
// (scales, B), and the pyramids of preds and target.
std::tuple<Tensor, Tensor, Tensor, Tensor> multiscale_ssim_with_scales(
    const Tensor& preds, const Tensor& target, bool gaussian, std::vector<double> sigma,
    std::vector<std::int64_t> kernel_size, std::optional<double> data_range,
    std::optional<std::vector<double>> interval, double k1, double k2, std::vector<double> betas,
    std::int64_t normalize, std::int64_t reduction) {
  ms_ssim::Problem problem =
      make_ms_ssim_problem(preds, target, {gaussian, sigma, kernel_size}, data_range, interval, k1,
                           k2, betas, normalize, reduction);
  Tensor value = make_value(problem, preds);
  Tensor means = empty_like_device(mean_sizes(problem), DType::kFloat64, preds);
  Tensor preds_pyramid = make_pyramid(problem, preds);
  Tensor target_pyramid = make_pyramid(problem, preds);
  problem.value = value.mutable_data_ptr();
  problem.means = static_cast<double*>(means.mutable_data_ptr());
  problem.preds_pyramid = preds_pyramid.mutable_data_ptr();
  problem.target_pyramid = target_pyramid.mutable_data_ptr();
  execute(problem, preds);
  return {value, means, preds_pyramid, target_pyramid};
}

// The memory of a tensor that the forward pass saved; it is only read.
void* left_behind(const char* name, const Tensor& tensor, const Tensor& preds, DType dtype,
                  const std::vector<std::int64_t>& sizes) {
  check_same_device(tensor, preds, name, "preds");
  const auto given = tensor.sizes();
  if (!std::equal(given.begin(), given.end(), sizes.begin(), sizes.end()) ||
      dtype_of(tensor) != dtype || !tensor.is_contiguous())
    fail_runtime("Expected `", name, "` as `multiscale_ssim_with_scales` gave it, but got ",
                 shape_text(tensor), " of ", dtype_text(tensor), ".");
  return const_cast<void*>(tensor.const_data_ptr());
}

std::tuple<Tensor, Tensor> multiscale_ssim_backward(
    const Tensor& preds, const Tensor& target, const Tensor& means, const Tensor& preds_pyramid,
    const Tensor& target_pyramid, const Tensor& grad_value, bool need_preds, bool need_target,
    bool gaussian, std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
    std::optional<double> data_range, std::optional<std::vector<double>> interval, double k1,
    double k2, std::vector<double> betas, std::int64_t normalize, std::int64_t reduction) {
  BackwardProblem problem;
  ms_ssim::Problem& forward = problem.forward;
  forward = make_ms_ssim_problem(preds, target, {gaussian, sigma, kernel_size}, data_range,
                                 interval, k1, k2, betas, normalize, reduction);
  forward.means = static_cast<double*>(
      left_behind("means", means, preds, DType::kFloat64, mean_sizes(forward)));
  const DType pooled = ms_ssim::pooled_dtype(forward);
  const std::int64_t elements = ms_ssim::pyramid_elements(forward);
  forward.preds_pyramid = left_behind("preds_pyramid", preds_pyramid, preds, pooled, {elements});
  forward.target_pyramid = left_behind("target_pyramid", target_pyramid, preds, pooled, {elements});
  const bool each = forward.reduction == Reduction::kNone;
  problem.grad_value = arriving_gradient(
      "grad_value", grad_value, preds,
      each ? std::vector<std::int64_t>{preds.sizes()[0]} : std::vector<std::int64_t>{});

  Tensor grad_preds = make_gradient("preds", preds, need_preds);
  Tensor grad_target = make_gradient("target", target, need_target);
  if (!(need_preds || need_target) || preds.numel() == 0) return {grad_preds, grad_target};
  if (need_preds) problem.preds = image_gradient(grad_preds);
  if (need_target) problem.target = image_gradient(grad_target);
  Tensor grad_preds_pyramid = make_pyramid(forward, preds, need_preds);
  Tensor grad_target_pyramid = make_pyramid(forward, preds, need_target);
  problem.preds_pyramid = grad_preds_pyramid.mutable_data_ptr();
  problem.target_pyramid = grad_target_pyramid.mutable_data_ptr();
  execute(problem, preds);
  return {grad_preds, grad_target};
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
#define SYNCFREE_OPTIONS                                                                    \
  "bool gaussian, float[] sigma, int[] kernel_size, float? data_range, float[]? interval, " \
  "float k1, float k2, float[] betas, int normalize, int reduction) -> "
  library.def("multiscale_ssim_with_scales(Tensor preds, Tensor target, " SYNCFREE_OPTIONS
              "(Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "multiscale_ssim_backward(Tensor preds, Tensor target, Tensor means, Tensor preds_pyramid, "
      "Tensor target_pyramid, Tensor grad_value, bool need_preds, bool "
      "need_target, " SYNCFREE_OPTIONS "(Tensor, Tensor)");
#undef SYNCFREE_OPTIONS
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("multiscale_ssim_with_scales", TORCH_BOX(&multiscale_ssim_with_scales));
  library.impl("multiscale_ssim_backward", TORCH_BOX(&multiscale_ssim_backward));
}

}  // namespace syncfree::ops
