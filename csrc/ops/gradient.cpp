// Checks and allocation of gradients.
#include "ops/gradient.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>

namespace syncfree::ops {

void check_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                    const std::vector<std::int64_t>& sizes) {
  check_same_device(gradient, preds, name, "preds");
  const auto given = gradient.sizes();
  if (!std::equal(given.begin(), given.end(), sizes.begin(), sizes.end()))
    fail_runtime("Expected `", name, "` to have the shape of its result, but got ",
                 shape_text(gradient), ".");
  if (!is_floating(dtype_of(gradient)))
    fail_runtime("Expected `", name, "` to be of a floating dtype, but got ", dtype_text(gradient),
                 ".");
}

TensorView arriving_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                             const std::vector<std::int64_t>& sizes) {
  check_gradient(name, gradient, preds, sizes);
  return view_of(gradient);
}

Tensor make_gradient(const char* name, const Tensor& image, bool wanted) {
  if (!wanted) {
    const std::int64_t none = 0;
    return empty_like_device({&none, 1}, DType::kFloat32, image);
  }
  if (!is_floating(dtype_of(image)))
    fail_runtime("Expected `", name, "` to be of a floating dtype, since ", dtype_text(image),
                 " has no gradient.");
  return torch::stable::empty_like(image);
}

}  // namespace syncfree::ops
