// Where the autograd graph ends: metrics have no second derivative here.
#include "first_derivative.h"

#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace syncfree::call {
namespace {

// The autograd engine does not translate std::invalid_argument, which is a ValueError elsewhere.
variable_list gradients_of(const Operator& op, Stack& stack) {
  try {
    op.handle.callBoxed(stack);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  return {stack[0].toTensor(), stack[1].toTensor()};
}

}  // namespace
}  // namespace syncfree::call

// At global scope, because torch names the node of the graph after this type.
struct SyncfreeFirstDerivative : torch::autograd::Function<SyncfreeFirstDerivative> {
  static variable_list forward(AutogradContext* context, at::TensorList,
                               const syncfree::call::Operator* op, syncfree::call::Stack* stack) {
    context->saved_data["name"] = op->handle.schema().name();
    return syncfree::call::gradients_of(*op, *stack);
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, context->saved_data.at("name").toStringRef(),
        " cannot be differentiated: metrics have no second derivative here. Do without "
        "`create_graph=True`, or use torchmetrics for this loss.");
  }
};

namespace syncfree::call {

variable_list first_derivative(const Operator& op, Stack&& stack) {
  if (!at::GradMode::is_enabled()) return gradients_of(op, stack);
  variable_list inputs;
  for (const c10::IValue& value : stack)
    if (value.isTensor()) inputs.push_back(value.toTensor());
  return SyncfreeFirstDerivative::apply(at::TensorList(inputs), &op, &stack);
}

}  // namespace syncfree::call
