// Gradients that operators find, as part of a graph where one is recorded.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include "operator.h"

namespace syncfree::call {

// The two gradients that `op` returns. Under `create_graph=True` they are part of the graph, so
// that a second derivative raises instead of missing silently.
torch::autograd::variable_list first_derivative(const Operator& op, Stack&& stack);

}  // namespace syncfree::call
