// torch.ops.syncfree.multiscale_ssim and multiscale_ssim_update
#include "ms_ssim/ms_ssim.h"

#include "ops/backend.h"
#include "ops/ms_ssim_arguments.h"
#include "ops/running_mean.h"

namespace syncfree::ops {
namespace {

Tensor computed(ms_ssim::Problem& problem, const Tensor& images) {
  Tensor value = make_value(problem, images);
  // Not part of the workspace, which a stream keeps: pyramids have the size of the images.
  Tensor preds_pyramid = make_pyramid(problem, images);
  Tensor target_pyramid = make_pyramid(problem, images);
  problem.value = value.mutable_data_ptr();
  problem.preds_pyramid = preds_pyramid.mutable_data_ptr();
  problem.target_pyramid = target_pyramid.mutable_data_ptr();
  execute(problem, images);
  return value;
}

Tensor multiscale_ssim(const Tensor& preds, const Tensor& target, bool gaussian,
                       std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
                       std::optional<double> data_range,
                       std::optional<std::vector<double>> interval, double k1, double k2,
                       std::vector<double> betas, std::int64_t normalize, std::int64_t reduction) {
  ms_ssim::Problem problem =
      make_ms_ssim_problem(preds, target, {gaussian, sigma, kernel_size}, data_range, interval, k1,
                           k2, betas, normalize, reduction);
  return computed(problem, preds);
}

// Also adds the batch to a metric's states. `similarity` is null if the metric keeps the values of
// all images; otherwise the value has its dtype.
Tensor multiscale_ssim_update(const Tensor& preds, const Tensor& target,
                              std::optional<Tensor> similarity, Tensor total, bool gaussian,
                              std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
                              std::optional<double> data_range,
                              std::optional<std::vector<double>> interval, double k1, double k2,
                              std::vector<double> betas, std::int64_t normalize,
                              std::int64_t reduction) {
  ms_ssim::Problem problem =
      make_ms_ssim_problem(preds, target, {gaussian, sigma, kernel_size}, data_range, interval, k1,
                           k2, betas, normalize, reduction);
  if (similarity.has_value() == (problem.reduction == Reduction::kNone))
    fail_value("Expected `similarity` where `reduction` is a mean or a sum, and only there.");
  problem.running = running_mean(similarity ? &*similarity : nullptr, total, preds);
  if (similarity) problem.result_dtype = problem.running.sum_dtype;
  return computed(problem, preds);
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
#define SYNCFREE_OPTIONS                                                                    \
  "bool gaussian, float[] sigma, int[] kernel_size, float? data_range, float[]? interval, " \
  "float k1, float k2, float[] betas, int normalize, int reduction) -> Tensor"
  library.def("multiscale_ssim(Tensor preds, Tensor target, " SYNCFREE_OPTIONS);
  library.def(
      "multiscale_ssim_update(Tensor preds, Tensor target, Tensor(a!)? similarity, "
      "Tensor(b!) total, " SYNCFREE_OPTIONS);
#undef SYNCFREE_OPTIONS
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("multiscale_ssim", TORCH_BOX(&multiscale_ssim));
  library.impl("multiscale_ssim_update", TORCH_BOX(&multiscale_ssim_update));
}

}  // namespace syncfree::ops
