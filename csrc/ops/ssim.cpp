// torch.ops.syncfree.ssim and ssim_update, both also with map and with contrast; image_quality
#include "ssim/ssim.h"

#include <tuple>
#include <type_traits>

#include "image_quality/image_quality.h"
#include "ops/backend.h"
#include "ops/running_mean.h"
#include "ops/ssim_arguments.h"
#include "ssim/ssim_math.h"

namespace syncfree::ops {
namespace {

using ssim::Problem;

Problem make_problem(const Tensor& preds, const Tensor& target, const WindowArguments& window,
                     std::optional<double> data_range,
                     const std::optional<std::vector<double>>& interval, double k1, double k2,
                     std::int64_t reduction) {
  check_images(preds, target);
  Problem problem;
  problem.preds = volume_view(preds);
  problem.target = volume_view(target);
  set_axes(problem.axes, window, preds);
  problem.range = make_range(data_range, interval);
  problem.k1 = k1;
  problem.k2 = k2;
  problem.reduction = static_cast<Reduction>(reduction);
  problem.result_dtype = is_floating(problem.preds.dtype) ? problem.preds.dtype : DType::kFloat32;
  return problem;
}

Tensor empty_values(const Problem& problem, const Tensor& like) {
  const std::int64_t images = problem.preds.size[0];
  return empty_like_device({&images, problem.reduction == Reduction::kNone ? 1u : 0u},
                           problem.value_dtype(), like);
}

// What an op returns besides the value.
enum class Extra { kNothing, kMap, kContrast };

template <Extra extra>
using Values = std::conditional_t<extra == Extra::kNothing, Tensor, std::tuple<Tensor, Tensor>>;

Tensor empty_map(const Problem& problem, const Tensor& images) {
  std::vector<std::int64_t> sizes(images.sizes().begin(), images.sizes().end());
  const std::size_t axes = sizes.size() - 2;
  for (std::size_t i = 0; i < axes; ++i)
    sizes[2 + i] = ssim::map_size(problem.axes[3 - axes + i], sizes[2 + i]);
  return empty_like_device(sizes, problem.result_dtype, images);
}

template <Extra extra>
Values<extra> computed(Problem& problem, const Tensor& images) {
  Tensor value = empty_values(problem, images);
  problem.value = value.mutable_data_ptr();
  if constexpr (extra == Extra::kNothing) {
    execute(problem, images);
    return value;
  } else if constexpr (extra == Extra::kMap) {
    Tensor map = empty_map(problem, images);
    problem.map = map.mutable_data_ptr();
    execute(problem, images);
    return {value, map};
  } else {
    Tensor contrast = empty_like_device({&problem.preds.size[0], 1}, problem.result_dtype, images);
    problem.contrast = contrast.mutable_data_ptr();
    execute(problem, images);
    return {value, contrast};
  }
}

template <Extra extra>
Values<extra> ssim_values(const Tensor& preds, const Tensor& target, bool gaussian,
                          std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
                          std::optional<double> data_range,
                          std::optional<std::vector<double>> interval, double k1, double k2,
                          std::int64_t reduction, bool valid) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size, valid}, data_range,
                                 interval, k1, k2, reduction);
  return computed<extra>(problem, preds);
}

// Also adds the batch to a metric's states; the value has the dtype of `similarity`.
template <Extra extra>
Values<extra> ssim_update(const Tensor& preds, const Tensor& target, Tensor similarity,
                          Tensor total, bool gaussian, std::vector<double> sigma,
                          std::vector<std::int64_t> kernel_size, std::optional<double> data_range,
                          std::optional<std::vector<double>> interval, double k1, double k2,
                          std::int64_t reduction, bool valid) {
  Problem problem = make_problem(preds, target, {gaussian, sigma, kernel_size, valid}, data_range,
                                 interval, k1, k2, reduction);
  if (problem.reduction == Reduction::kNone)
    fail_value("Expected `reduction` to be a mean or a sum where values are added to states.");
  problem.running = running_mean(&similarity, total, preds);
  return computed<extra>(problem, preds);
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
#define SYNCFREE_OPTIONS                                                 \
  "bool gaussian, float[] sigma, int[] kernel_size, float? data_range, " \
  "float[]? interval, float k1, float k2, int reduction, bool valid=False) -> "
#define SYNCFREE_ARGUMENTS "(Tensor preds, Tensor target, " SYNCFREE_OPTIONS
#define SYNCFREE_UPDATE_ARGUMENTS \
  "(Tensor preds, Tensor target, Tensor(a!) similarity, Tensor(b!) total, " SYNCFREE_OPTIONS
  library.def("ssim" SYNCFREE_ARGUMENTS "Tensor");
  library.def("ssim_with_map" SYNCFREE_ARGUMENTS "(Tensor, Tensor)");
  library.def("ssim_with_contrast" SYNCFREE_ARGUMENTS "(Tensor, Tensor)");
  library.def("ssim_update" SYNCFREE_UPDATE_ARGUMENTS "Tensor");
  library.def("ssim_update_with_map" SYNCFREE_UPDATE_ARGUMENTS "(Tensor, Tensor)");
  library.def("ssim_update_with_contrast" SYNCFREE_UPDATE_ARGUMENTS "(Tensor, Tensor)");
#undef SYNCFREE_UPDATE_ARGUMENTS
#undef SYNCFREE_ARGUMENTS
#undef SYNCFREE_OPTIONS
  library.def(
      "image_quality(Tensor preds, Tensor target, bool gaussian, float[] sigma, "
      "int[] kernel_size, float data_range, float[]? interval, float k1, float k2, "
      "int reduction) -> (Tensor, Tensor, Tensor)");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("ssim", TORCH_BOX(&ssim_values<Extra::kNothing>));
  library.impl("ssim_with_map", TORCH_BOX(&ssim_values<Extra::kMap>));
  library.impl("ssim_with_contrast", TORCH_BOX(&ssim_values<Extra::kContrast>));
  library.impl("ssim_update", TORCH_BOX(&ssim_update<Extra::kNothing>));
  library.impl("ssim_update_with_map", TORCH_BOX(&ssim_update<Extra::kMap>));
  library.impl("ssim_update_with_contrast", TORCH_BOX(&ssim_update<Extra::kContrast>));
  library.impl("image_quality", TORCH_BOX(&image_quality));
}

}  // namespace syncfree::ops
