// torch.ops.syncfree.ssim_backward, and ssim_with_gradients, which gives a loss too.
#include "ssim/ssim_backward.h"

#include <torch/csrc/stable/ops.h>

#include <tuple>

#include "image_quality/image_quality.h"
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

BackwardProblem make_problem(const Tensor& preds, const Tensor& target,
                             const WindowArguments& window, std::optional<double> data_range,
                             const std::optional<std::vector<double>>& interval, double k1,
                             double k2, std::int64_t reduction) {
  check_images(preds, target);
  BackwardProblem problem;
  problem.forward.preds = volume_view(preds);
  problem.forward.target = volume_view(target);
  set_axes(problem.forward.axes, window, preds);
  problem.forward.range = make_range(data_range, interval);
  problem.forward.k1 = k1;
  problem.forward.k2 = k2;
  problem.forward.reduction = static_cast<Reduction>(reduction);
  return problem;
}

std::tuple<Tensor, Tensor> ssim_backward(
    const Tensor& preds, const Tensor& target, std::optional<Tensor> grad_value,
    std::optional<Tensor> grad_contrast, std::optional<Tensor> grad_map,
    std::optional<Tensor> grad_squared_error, std::optional<Tensor> grad_absolute_error,
    bool need_preds, bool need_target, bool gaussian, std::vector<double> sigma,
    std::vector<std::int64_t> kernel_size, std::optional<double> data_range,
    std::optional<std::vector<double>> interval, double k1, double k2, std::int64_t reduction,
    bool valid) {
  BackwardProblem problem = make_problem(preds, target, {gaussian, sigma, kernel_size, valid},
                                         data_range, interval, k1, k2, reduction);
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

// Whether the kernels compute the loss together with its gradients, in one pass.
bool gives_loss(const BackwardProblem& problem, [[maybe_unused]] const Tensor& images) {
#if defined(SYNCFREE_OPS_CUDA)
  const CudaContext context(images);
  return ssim::launch_gives_loss(problem);
#else
  return ssim::run_gives_loss(problem);
#endif
}

// Computes the loss in passes of its own.
Tensor find_loss(const BackwardProblem& problem, DType dtype, const Tensor& images) {
  const double weight = *problem.loss_weight;
  ssim::Problem forward = problem.forward;
  Tensor value = empty_like_device({}, dtype, images);
  forward.value = value.mutable_data_ptr();
  forward.result_dtype = dtype;
  const bool wants_error = weight != 1.0;
  std::optional<Tensor> sums;
  if (wants_error) {
    sums = empty_like_device({&forward.preds.size[0], 1}, DType::kFloat64, images);
    forward.absolute_error = static_cast<double*>(sums->mutable_data_ptr());
  }
  execute(forward, images);
  const Tensor most =
      torch::stable::full({}, weight, scalar_type_of(dtype), std::nullopt, value.device());
  const Tensor loss = torch::stable::subtract(most, value, weight);
  if (!wants_error) return loss;
  image_quality::Problem finish;
  finish.squared_error = finish.absolute_error = forward.absolute_error;
  finish.images = forward.preds.size[0];
  finish.elements = finish.images == 0 ? 0 : images.numel() / finish.images;
  finish.range = forward.range;
  Tensor error = empty_like_device({}, dtype, images);
  finish.mean_absolute_error = error.mutable_data_ptr();
  finish.result_dtype = dtype;
  execute(finish, images);
  return torch::stable::subtract(loss, error, weight - 1.0);
}

// A loss, weight * (1 - SSIM) + (1 - weight) * mean absolute error in the mean over all images, and
// its gradients for an arriving gradient of 1.
std::tuple<Tensor, Tensor, Tensor> ssim_with_gradients(
    const Tensor& preds, const Tensor& target, double weight, bool need_preds, bool need_target,
    bool gaussian, std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
    std::optional<double> data_range, std::optional<std::vector<double>> interval, double k1,
    double k2, std::int64_t reduction, bool valid) {
  BackwardProblem problem = make_problem(preds, target, {gaussian, sigma, kernel_size, valid},
                                         data_range, interval, k1, k2, reduction);
  if (problem.forward.reduction != Reduction::kMean)
    fail_value("Expected `reduction` to be the mean (1), but got ", reduction, ".");
  problem.loss_weight = weight;
  const DType dtype = dtype_of(preds) == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Tensor grad_preds = make_gradient("preds", preds, need_preds);
  Tensor grad_target = make_gradient("target", target, need_target);
  if (need_preds) problem.preds = image_gradient(grad_preds);
  if (need_target) problem.target = image_gradient(grad_target);

  const bool wants_gradients = (need_preds || need_target) && preds.numel() > 0;
  std::optional<Tensor> loss;
  if (wants_gradients && gives_loss(problem, preds)) {
    loss = empty_like_device({}, dtype, preds);
    problem.loss = static_cast<float*>(loss->mutable_data_ptr());
  } else {
    loss = find_loss(problem, dtype, preds);
  }
  if (wants_gradients) execute(problem, preds);
  return {*loss, grad_preds, grad_target};
}

// Whether ssim_with_gradients takes one pass.
bool ssim_gives_gradients(const Tensor& preds, const Tensor& target, bool gaussian,
                          std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
                          std::optional<double> data_range,
                          std::optional<std::vector<double>> interval, double k1, double k2,
                          std::int64_t reduction, bool valid) {
  return gives_loss(make_problem(preds, target, {gaussian, sigma, kernel_size, valid}, data_range,
                                 interval, k1, k2, reduction),
                    preds);
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
  library.def(
      "ssim_with_gradients(Tensor preds, Tensor target, float weight, bool need_preds, "
      "bool need_target, bool gaussian, float[] sigma, int[] kernel_size, float? data_range, "
      "float[]? interval, float k1, float k2, int reduction, bool valid=False) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "ssim_gives_gradients(Tensor preds, Tensor target, bool gaussian, float[] sigma, "
      "int[] kernel_size, float? data_range, float[]? interval, float k1, float k2, "
      "int reduction, bool valid=False) -> bool");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("ssim_backward", TORCH_BOX(&ssim_backward));
  library.impl("ssim_with_gradients", TORCH_BOX(&ssim_with_gradients));
  library.impl("ssim_gives_gradients", TORCH_BOX(&ssim_gives_gradients));
}

}  // namespace syncfree::ops
