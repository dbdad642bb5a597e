// Checks and conversions of the SSIM family.
#include "ops/ssim_arguments.h"

#include <algorithm>
#include <utility>

#include "ssim/volume_view.h"
#include "ssim/window_axis.h"

namespace syncfree::ops {
namespace {

template <class T>
std::string list_text(const std::vector<T>& list) {
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

std::int64_t spatial_size(const Tensor& images, int axis, int scale) {
  return images.sizes()[static_cast<std::size_t>(2 + axis)] >> scale;
}

std::string scale_text(int scale) {
  return scale == 0 ? "" : ", halved " + std::to_string(scale) + (scale == 1 ? " time" : " times");
}

constexpr std::int64_t kMostChannels = 4;  // a last dimension up to this may be channels
constexpr int kLastOfVolumes = 2;          // an axis that TorchMetrics pads by `kernel_size`

void check_fit(const ssim::Axis& window, const Tensor& images, int axis, int scale) {
  const std::int64_t size = spatial_size(images, axis, scale), taps = window.taps;
  const std::int64_t pad = window.pad;
  // Without planes (no images or no channels) nothing is mirrored; in a plane, an axis without
  // pixels cannot be.
  const bool has_planes = images.sizes()[0] > 0 && images.sizes()[1] > 0;
  if (pad >= size && has_planes)
    fail_runtime(
        "Padding size should be less than the corresponding input dimension, but got: "
        "padding ",
        pad, " at dimension ", axis + 2, " of input ", shape_text(images), scale_text(scale),
        ". Use larger images or, by a smaller ",
        window.sigma > 0 && axis != kLastOfVolumes ? "`sigma`" : "`kernel_size`",
        ", a smaller window.",
        images.sizes().back() > 0 && images.sizes().back() <= kMostChannels
            ? " Channels that come last are moved with `.movedim(-1, 1)`."
            : "");
  if (size + 2 * pad < taps)
    fail_runtime("Calculated padded input size per channel is smaller than the window of ", taps,
                 " taps at dimension ", axis + 2, " of input ", shape_text(images),
                 scale_text(scale), ". Use larger images.");
}

const char* axes_advice(std::int64_t dimensions) {
  if (dimensions == 2) return " Add the axes of batch and channel with `[None, None]`.";
  return dimensions == 3 ? " Add the batch axis with `.unsqueeze(0)`." : "";
}

}  // namespace

TensorView volume_view(const Tensor& tensor) {
  return ssim::volume_view(view_of(tensor));
}

ssim::Gradient image_gradient(Tensor& gradient) {
  ssim::Gradient image;
  image.layout = volume_view(gradient);
  image.data = gradient.mutable_data_ptr();
  return image;
}

void check_images(const Tensor& preds, const Tensor& target) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  if (preds.dim() != 4 && preds.dim() != 5)
    fail_value("Expected `preds` and `target` to have BxCxHxW or BxCxDxHxW shape. Got preds: ",
               shape_text(preds), " and target: ", shape_text(target), ".",
               axes_advice(preds.dim()));
  check_dtypes(preds, target);
  for (const auto& [tensor, name] : {std::pair{&preds, "preds"}, std::pair{&target, "target"}}) {
    const DType dtype = dtype_of(*tensor, name);
    if (dtype == DType::kBool)
      fail_runtime("Expected `", name,
                   "` to be images of a floating or integer dtype, but got bool. Convert them with "
                   "`.to(torch.float32)`.");
    if (!is_floating(dtype) && dtype != DType::kUInt8)
      fail_runtime("Expected `", name, "` to be images of a floating dtype or uint8, but got ",
                   dtype_text(*tensor), ". Convert them with `.to(torch.float32)`.");
  }
}

void set_axes(ssim::Axis (&axes)[3], const WindowArguments& window, const Tensor& images,
              int scales) {
  const auto sizes = per_axis("kernel_size", window.kernel_size, images);
  const auto sigmas = per_axis("sigma", window.sigma, images);
  if (!std::all_of(sizes.begin(), sizes.end(), [](auto k) { return k > 0 && k % 2 == 1; }))
    fail_value("Expected `kernel_size` to have odd positive number. Got ", list_text(sizes), ".");
  if (!std::all_of(sigmas.begin(), sigmas.end(), [](auto s) { return s > 0 && s < 1e6; }))
    fail_value("Expected `sigma` to have positive number",
               std::any_of(sigmas.begin(), sigmas.end(), [](auto s) { return s >= 1e6; })
                   ? " below 1e6"
                   : "",
               ". Got ", list_text(sigmas), ".");
  const int count = static_cast<int>(sizes.size());
  for (int scale = 0; scale < scales; ++scale)
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const ssim::Axis axis =
          ssim::window_axis(i, sizes[at], sigmas[at], window.gaussian, window.valid);
      check_fit(axis, images, i, scale);
      axes[3 - count + i] = axis;
    }
}

DataRange make_range(std::optional<double> data_range,
                     const std::optional<std::vector<double>>& interval) {
  DataRange range;
  if (interval.has_value()) {
    if (interval->size() != 2) fail_value("Expected `interval` to be (low, high).");
    range = {DataRange::Source::kInterval, 0.0, (*interval)[0], (*interval)[1]};
  } else if (data_range.has_value()) {
    range.value = *data_range;
  } else {
    range.source = DataRange::Source::kData;
  }
  return range;
}

}  // namespace syncfree::ops
