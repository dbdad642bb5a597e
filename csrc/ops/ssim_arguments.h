// Arguments shared by the ops of the SSIM family, checked as TorchMetrics checks them.
#pragma once

#include <optional>
#include <vector>

#include "core/data_range.h"
#include "ops/torch_abi.h"
#include "ssim/ssim_backward.h"

namespace syncfree::ops {

// Sequences of one entry for each spatial axis, or of one entry for all.
struct WindowArguments {
  bool gaussian;
  const std::vector<double>& sigma;
  const std::vector<std::int64_t>& kernel_size;
  bool valid = false;  // only windows that lie inside the images
};

void check_images(const Tensor& preds, const Tensor& target);

// (B, C, D, H, W); a flat image gets a depth of one.
TensorView volume_view(const Tensor& tensor);

// Sets the window's axes (depth, height, width) for checked images. The window must also fit images
// that are halved `scales` - 1 times.
void set_axes(ssim::Axis (&axes)[3], const WindowArguments& window, const Tensor& images,
              int scales = 1);

// Describes `gradient`, a tensor laid out like the image whose gradient is written to it.
ssim::Gradient image_gradient(Tensor& gradient);

DataRange make_range(std::optional<double> data_range,
                     const std::optional<std::vector<double>>& interval);

}  // namespace syncfree::ops
