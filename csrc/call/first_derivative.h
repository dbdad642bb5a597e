// Gradients computed by an operator, as part of the autograd graph where one is recorded.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include "operator.h"

namespace syncfree::call {

// The two gradients that `op` returns. Under `create_graph=True` they are part of the graph, so
// that a second derivative raises instead of silently being left out.
torch::autograd::variable_list first_derivative(const Operator& op, Stack&& stack);

}  // namespace syncfree::call
