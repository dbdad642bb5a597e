// What the ops of gradients have in common.
#pragma once

#include <vector>

#include "ops/torch_abi.h"

namespace syncfree::ops {

// Raises for what cannot be the gradient that arrives for a result of these sizes.
void check_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                    const std::vector<std::int64_t>& sizes);

// Checked so.
TensorView arriving_gradient(const char* name, const Tensor& gradient, const Tensor& preds,
                             const std::vector<std::int64_t>& sizes);

// A fresh gradient laid out as its image, or without elements where it is not wanted.
Tensor make_gradient(const char* name, const Tensor& image, bool wanted);

}  // namespace syncfree::ops
