// Shared by the ops of gradients.
#pragma once

#include <vector>

#include "ops/torch_abi.h"

namespace syncfree::ops {

// Raises unless the tensor can be the gradient that arrives for a result of these sizes.
void check_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                    const std::vector<std::int64_t>& sizes);

// The same checks; returns the gradient's view.
TensorView arriving_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                             const std::vector<std::int64_t>& sizes);

// A new tensor for a gradient, laid out like its image; without elements if it is not wanted.
Tensor make_gradient(const char* name, const Tensor& image, bool wanted);

}  // namespace syncfree::ops
