// torch.ops.syncfree.ssim_backward
#include "ssim/ssim_backward.h"

#include <tuple>

#include "ops/backend.h"
#include "ops/gradient.h"
#include "ops/ssim_arguments.h"

namespace syncfree::ops {
namespace {

using ssim::BackwardProblem;

std::vector<std::int64_t> map_sizes(const BackwardProblem& problem, const Tensor& preds) {
  std::vector<std::int64_t> sizes(preds.sizes().begin(), preds.sizes().end());
  const std::size_t axes = sizes.size() - 2;
  for (std::size_t i = 0; i < axes; ++i) {
    const ssim::Axis& axis = problem.forward.axes[3 - axes + i];
    sizes[2 + i] += 2 * axis.pad - (axis.taps - 1);
  }
  return sizes;
}

std::tuple<Tensor, Tensor> ssim_backward(
    const Tensor& preds, const Tensor& target, std::optional<Tensor> grad_value,
    std::optional<Tensor> grad_contrast, std::optional<Tensor> grad_map,
    std::optional<Tensor> grad_squared_error, std::optional<Tensor> grad_absolute_error,
    bool need_preds, bool need_target, bool gaussian, std::vector<double> sigma,
    std::vector<std::int64_t> kernel_size, std::optional<double> data_range,
    std::optional<std::vector<double>> interval, double k1, double k2, std::int64_t reduction,
    bool valid) {
  check_images(preds, target);
  BackwardProblem problem;
  problem.forward.preds = volume_view(preds);
  problem.forward.target = volume_view(target);
  set_axes(problem.forward.axes, {gaussian, sigma, kernel_size, valid}, preds);
  problem.forward.range = make_range(data_range, interval);
  problem.forward.k1 = k1;
  problem.forward.k2 = k2;
  problem.forward.reduction = static_cast<Reduction>(reduction);

  const std::vector<std::int64_t> each{preds.sizes()[0]};
  const bool reduced = problem.forward.reduction != Reduction::kNone;
  if (grad_value)
    problem.grad_value = arriving_gradient("grad_value", *grad_value, preds,
                                           reduced ? std::vector<std::int64_t>{} : each);
  if (grad_contrast)
    problem.grad_contrast = arriving_gradient("grad_contrast", *grad_contrast, preds, each);
  if (grad_squared_error)
    problem.grad_squared_error =
        arriving_gradient("grad_squared_error", *grad_squared_error, preds, each);
  if (grad_absolute_error)
    problem.grad_absolute_error =
        arriving_gradient("grad_absolute_error", *grad_absolute_error, preds, each);
  if (grad_map) {
    arriving_gradient("grad_map", *grad_map, preds, map_sizes(problem, preds));
    problem.grad_map = volume_view(*grad_map);
  }

  Tensor grad_preds = make_gradient("preds", preds, need_preds);
  Tensor grad_target = make_gradient("target", target, need_target);
  if (need_preds) problem.preds = image_gradient(grad_preds);
  if (need_target) problem.target = image_gradient(grad_target);
  if ((need_preds || need_target) && preds.numel() > 0) execute(problem, preds);
  return {grad_preds, grad_target};
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "ssim_backward(Tensor preds, Tensor target, Tensor? grad_value, Tensor? grad_contrast, "
      "Tensor? grad_map, Tensor? grad_squared_error, Tensor? grad_absolute_error, "
      "bool need_preds, bool need_target, bool gaussian, float[] sigma, int[] kernel_size, "
      "float? data_range, float[]? interval, float k1, float k2, int reduction, "
      "bool valid=False) -> (Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("ssim_backward", TORCH_BOX(&ssim_backward));
}

}  // namespace syncfree::ops
