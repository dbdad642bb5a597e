// torch.ops.syncfree.ssim, ssim_with_map, ssim_with_contrast and image_quality
#include "ssim/ssim.h"

#include <algorithm>
#include <tuple>

#include "image_quality/image_quality.h"
#include "ops/backend.h"

namespace syncfree::ops {
namespace {

using ssim::Problem;

std::string list_text(const std::vector<std::int64_t>& list) {
  std::ostringstream text;
  for (std::size_t i = 0; i < list.size(); ++i) text << (i == 0 ? "" : ", ") << list[i];
  return '[' + text.str() + ']';
}

std::string list_text(const std::vector<double>& list) {
  std::ostringstream text;
  for (std::size_t i = 0; i < list.size(); ++i) text << (i == 0 ? "" : ", ") << list[i];
  return '[' + text.str() + ']';
}

// One entry for each spatial dimension; a single entry counts for all.
template <class T>
std::vector<T> per_axis(const char* name, const std::vector<T>& given, const Tensor& images) {
  const std::size_t axes = static_cast<std::size_t>(images.dim()) - 2;
  if (given.size() == 1) return std::vector<T>(axes, given[0]);
  if (given.size() != axes)
    fail_value(
        "`", name, "` has dimension ", given.size(),
        ", but expected to be two less that target dimensionality, which is: ", images.dim());
  return given;
}

// (B, C, D, H, W); a flat image gets a depth of one.
TensorView volume_view(const Tensor& tensor) {
  TensorView view = view_of(tensor);
  if (view.rank == 5) return view;
  for (int d = 4; d > 2; --d) {
    view.size[d] = view.size[d - 1];
    view.stride[d] = view.stride[d - 1];
  }
  view.size[2] = 1;
  view.stride[2] = 0;
  view.rank = 5;
  return view;
}

void check_images(const Tensor& preds, const Tensor& target) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  if (preds.dim() != 4 && preds.dim() != 5)
    fail_value("Expected `preds` and `target` to have BxCxHxW or BxCxDxHxW shape. Got preds: ",
               shape_text(preds), " and target: ", shape_text(target), ".");
  for (const auto& [tensor, name] : {std::pair{&preds, "preds"}, std::pair{&target, "target"}}) {
    const DType dtype = dtype_of(*tensor);
    if (!is_floating(dtype) && dtype != DType::kUInt8)
      fail_runtime("Expected `", name, "` to be images of a floating dtype or uint8, but got ",
                   torch::headeronly::toString(tensor->scalar_type()),
                   ". Convert them with `.to(torch.float32)`.");
  }
}

struct Window {
  bool gaussian;
  std::vector<double> sigma;
  std::vector<std::int64_t> kernel_size;
};

// TorchMetrics sizes the Gaussian by sigma alone, but pads the last axis of a volume by
// kernel_size.
void set_axes(Problem& problem, const Window& window, const Tensor& images) {
  const auto sizes = per_axis("kernel_size", window.kernel_size, images);
  const auto sigmas = per_axis("sigma", window.sigma, images);
  if (!std::all_of(sizes.begin(), sizes.end(), [](auto k) { return k > 0 && k % 2 == 1; }))
    fail_value("Expected `kernel_size` to have odd positive number. Got ", list_text(sizes), ".");
  if (!std::all_of(sigmas.begin(), sigmas.end(), [](auto s) { return s > 0 && s < 1e6; }))
    fail_value("Expected `sigma` to have positive number. Got ", list_text(sigmas), ".");
  const int axes = static_cast<int>(sizes.size());
  for (int i = 0; i < axes; ++i) {
    ssim::Axis& axis = problem.axes[3 - axes + i];
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t taps =
        window.gaussian ? 2 * static_cast<std::int64_t>(3.5 * sigmas[at] + 0.5) + 1 : sizes[at];
    const std::int64_t pad = i == 2 ? (sizes[at] - 1) / 2 : (taps - 1) / 2;
    const std::int64_t size = problem.preds.size[5 - axes + i];
    if (pad >= size && problem.preds.numel() > 0)
      fail_runtime(
          "Padding size should be less than the corresponding input dimension, but got: "
          "padding ",
          pad, " at dimension ", i + 2, " of input ", shape_text(images),
          ". Use larger images or a smaller window.");
    if (size + 2 * pad < taps)
      fail_runtime("Calculated padded input size per channel is smaller than the window of ", taps,
                   " taps at dimension ", i + 2, " of input ", shape_text(images), ".");
    axis = {static_cast<int>(std::min<std::int64_t>(taps, 1 << 30)),
            static_cast<int>(std::min<std::int64_t>(pad, 1 << 29)),
            window.gaussian ? sigmas[at] : 0.0};
  }
}

Problem make_problem(const Tensor& preds, const Tensor& target, const Window& window,
                     std::optional<double> data_range,
                     const std::optional<std::vector<double>>& interval, double k1, double k2,
                     std::int64_t reduction) {
  check_images(preds, target);
  Problem problem;
  problem.preds = volume_view(preds);
  problem.target = volume_view(target);
  set_axes(problem, window, preds);
  if (interval.has_value()) {
    if (interval->size() != 2) fail_value("Expected `interval` to be (low, high).");
    problem.range = {DataRange::Source::kInterval, 0.0, (*interval)[0], (*interval)[1]};
  } else if (data_range.has_value()) {
    problem.range.value = *data_range;
  } else {
    problem.range.source = DataRange::Source::kData;
  }
  problem.k1 = k1;
  problem.k2 = k2;
  problem.reduction = static_cast<Reduction>(reduction);
  problem.result_dtype = is_floating(problem.preds.dtype) ? problem.preds.dtype : DType::kFloat32;
  return problem;
}

Tensor empty_values(const Problem& problem, const Tensor& like) {
  const std::int64_t images = problem.preds.size[0];
  return empty_like_device({&images, problem.reduction == Reduction::kNone ? 1u : 0u},
                           problem.result_dtype, like);
}

Tensor ssim_value(const Tensor& preds, const Tensor& target, bool gaussian,
                  std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
                  std::optional<double> data_range, std::optional<std::vector<double>> interval,
                  double k1, double k2, std::int64_t reduction) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size}, data_range,
                                 interval, k1, k2, reduction);
  Tensor value = empty_values(problem, preds);
  problem.value = value.mutable_data_ptr();
  execute(problem, preds);
  return value;
}

std::tuple<Tensor, Tensor> ssim_with_map(const Tensor& preds, const Tensor& target, bool gaussian,
                                         std::vector<double> sigma,
                                         std::vector<std::int64_t> kernel_size,
                                         std::optional<double> data_range,
                                         std::optional<std::vector<double>> interval, double k1,
                                         double k2, std::int64_t reduction) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size}, data_range,
                                 interval, k1, k2, reduction);
  Tensor value = empty_values(problem, preds);
  std::vector<std::int64_t> sizes(preds.sizes().begin(), preds.sizes().end());
  for (std::size_t d = 2; d < sizes.size(); ++d) {
    const ssim::Axis& axis = problem.axes[3 - (sizes.size() - 2) + (d - 2)];
    sizes[d] += 2 * axis.pad - (axis.taps - 1);
  }
  Tensor map = empty_like_device(sizes, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  problem.map = map.mutable_data_ptr();
  execute(problem, preds);
  return {value, map};
}

std::tuple<Tensor, Tensor> ssim_with_contrast(const Tensor& preds, const Tensor& target,
                                              bool gaussian, std::vector<double> sigma,
                                              std::vector<std::int64_t> kernel_size,
                                              std::optional<double> data_range,
                                              std::optional<std::vector<double>> interval,
                                              double k1, double k2, std::int64_t reduction) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size}, data_range,
                                 interval, k1, k2, reduction);
  Tensor value = empty_values(problem, preds);
  const std::int64_t images = problem.preds.size[0];
  Tensor contrast = empty_like_device({&images, 1}, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  problem.contrast = contrast.mutable_data_ptr();
  execute(problem, preds);
  return {value, contrast};
}

std::tuple<Tensor, Tensor, Tensor> image_quality(const Tensor& preds, const Tensor& target,
                                                 bool gaussian, std::vector<double> sigma,
                                                 std::vector<std::int64_t> kernel_size,
                                                 double data_range,
                                                 std::optional<std::vector<double>> interval,
                                                 double k1, double k2, std::int64_t reduction) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size}, data_range,
                                 interval, k1, k2, reduction);
  const std::int64_t images = problem.preds.size[0];
  const std::int64_t sums_shape[] = {2, images};
  Tensor sums = empty_like_device(sums_shape, DType::kFloat64, preds);
  Tensor ssim = empty_values(problem, preds);
  problem.value = ssim.mutable_data_ptr();
  problem.squared_error = static_cast<double*>(sums.mutable_data_ptr());
  problem.absolute_error = problem.squared_error + images;
  execute(problem, preds);

  syncfree::image_quality::Problem finish;
  finish.squared_error = problem.squared_error;
  finish.absolute_error = problem.absolute_error;
  finish.images = images;
  finish.elements = images == 0 ? 0 : preds.numel() / images;
  finish.range = problem.range;
  finish.reduction = problem.reduction;
  finish.result_dtype = problem.result_dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const std::size_t rank = problem.reduction == Reduction::kNone ? 1 : 0;
  Tensor psnr = empty_like_device({&images, rank}, finish.result_dtype, preds);
  Tensor mean_absolute_error = empty_like_device({&images, rank}, finish.result_dtype, preds);
  finish.psnr = psnr.mutable_data_ptr();
  finish.mean_absolute_error = mean_absolute_error.mutable_data_ptr();
  execute(finish, preds);
  return {psnr, ssim, mean_absolute_error};
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
#define SYNCFREE_SSIM_ARGUMENTS                                                     \
  "(Tensor preds, Tensor target, bool gaussian, float[] sigma, int[] kernel_size, " \
  "float? data_range, float[]? interval, float k1, float k2, int reduction) -> "
  library.def("ssim" SYNCFREE_SSIM_ARGUMENTS "Tensor");
  library.def("ssim_with_map" SYNCFREE_SSIM_ARGUMENTS "(Tensor, Tensor)");
  library.def("ssim_with_contrast" SYNCFREE_SSIM_ARGUMENTS "(Tensor, Tensor)");
#undef SYNCFREE_SSIM_ARGUMENTS
  library.def(
      "image_quality(Tensor preds, Tensor target, bool gaussian, float[] sigma, "
      "int[] kernel_size, float data_range, float[]? interval, float k1, float k2, "
      "int reduction) -> (Tensor, Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("ssim", TORCH_BOX(&ssim_value));
  library.impl("ssim_with_map", TORCH_BOX(&ssim_with_map));
  library.impl("ssim_with_contrast", TORCH_BOX(&ssim_with_contrast));
  library.impl("image_quality", TORCH_BOX(&image_quality));
}

}  // namespace syncfree::ops
