// weight * (1 - SSIM) + (1 - weight) * mean absolute error with its gradient, without Python.
//
// What `SsimLoss` in python/syncfree/losses does, and why, in the same order.
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/rsub.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "callable.h"
#include "first_derivative.h"
#include "module.h"
#include "operator.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace syncfree::call {
namespace {

constexpr std::size_t kBeforeOptions = 6;  // in `together`: images, weights, flags

struct LossOperators {
  Operator ssim, image_quality, together, gradients, scale;
};

const LossOperators* loss_operators = nullptr;

// Those that stand for several, as under `is_grads_batched=True`.
bool is_batched(const at::Tensor& tensor) {
  return tensor.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched}));
}

}  // namespace
}  // namespace syncfree::call

// At global scope for its name, which torch makes that of the graph's node.
struct SyncfreeSsimLoss : torch::autograd::Function<SyncfreeSsimLoss> {
  using Stack = syncfree::call::Stack;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& preds,
                            const at::Tensor& target, double weight, bool in_one_pass,
                            Stack* options) {
    // One list, for what stands in lists is no number that compiled autograd would trace.
    c10::List<c10::IValue> call(c10::AnyType::get());
    call.reserve(options->size() + 1);
    call.push_back(weight);
    for (const c10::IValue& option : *options) call.push_back(option);
    context->saved_data.emplace("call", std::move(call));
    context->set_materialize_grads(false);
    context->save_for_backward({preds, target});

    const auto& operators = *syncfree::call::loss_operators;
    at::Tensor similarity, error;
    Stack stack{preds, target};
    stack.reserve(syncfree::call::kBeforeOptions + options->size());
    if (in_one_pass) {
      stack.insert(stack.end(),
                   {-weight, 1 - weight, preds.requires_grad(), target.requires_grad()});
      stack.insert(stack.end(), options->begin(), options->end());
      operators.together.handle.callBoxed(stack);
      similarity = stack[0].toTensor();
      error = stack[1].toTensor();
      context->saved_data.emplace(
          "gradients", c10::List<at::Tensor>({stack[2].toTensor(), stack[3].toTensor()}));
    } else if (weight == 1) {
      stack.insert(stack.end(), options->begin(), options->end());
      operators.ssim.handle.callBoxed(stack);
      similarity = stack[0].toTensor();
    } else {
      stack.insert(stack.end(), options->begin(), options->end() - 1);  // always with borders
      operators.image_quality.handle.callBoxed(stack);
      similarity = stack[1].toTensor();
      error = stack[2].toTensor();
    }
    const at::Tensor loss = at::rsub(similarity, weight, weight);
    return weight == 1 ? loss : at::add(loss, error, 1 - weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor none;
    const at::Tensor& arrived = grads[0];
    if (!arrived.defined()) return {none, none, none, none, none};
    const auto& operators = *syncfree::call::loss_operators;
    const variable_list images = context->get_saved_variables();  // raises if they have changed
    const bool needs[] = {context->needs_input_grad(0), context->needs_input_grad(1)};
    // At once: who comes again finds none. torch runs one backward pass of a node at a time.
    const auto found = context->saved_data.find("gradients");
    c10::List<at::Tensor> kept;
    if (found != context->saved_data.end()) {
      kept = found->second.toTensorList();
      context->saved_data.erase(found);
    }
    if (!kept.empty() && !at::GradMode::is_enabled() && !syncfree::call::is_batched(arrived)) {
      Stack stack{kept.get(0), kept.get(1), arrived};
      operators.scale.handle.callBoxed(stack);
      if (stack[0].toBool())
        return {needs[0] ? kept.get(0) : none, needs[1] ? kept.get(1) : none, none, none, none};
    }
    const auto call = context->saved_data.at("call").toList();
    const double weight = call.get(0).toDouble();
    Stack stack{images[0], images[1], weight == 1 ? at::neg(arrived) : at::mul(arrived, -weight)};
    stack.resize(7);  // neither contrast, map nor squared error
    if (weight != 1) {
      const auto count = static_cast<double>(std::max<std::int64_t>(images[0].numel(), 1));
      stack[6] = at::mul(arrived, (1 - weight) / count).expand({images[0].size(0)});
    }
    stack.insert(stack.end(), {needs[0], needs[1]});
    for (std::size_t i = 1; i < call.size(); ++i) stack.push_back(call.get(i));
    const variable_list gradients =
        syncfree::call::first_derivative(operators.gradients, std::move(stack));
    return {needs[0] ? gradients[0] : none, needs[1] ? gradients[1] : none, none, none, none};
  }
};

namespace syncfree::call {
namespace {

// (preds, target, weight, in_one_pass, options)
bool push_loss(PyObject* const* arguments, std::size_t count, Stack& images, Stack& options) {
  const auto& parameters = loss_operators->together.parameters;
  if (count != 5 || function_mode_is_on() || !PyFloat_CheckExact(arguments[2]) ||
      !PyBool_Check(arguments[3]) || !PyTuple_CheckExact(arguments[4]) ||
      kBeforeOptions + static_cast<std::size_t>(PyTuple_GET_SIZE(arguments[4])) !=
          parameters.size() ||
      !push(parameters[0], arguments[0], images) || !push(parameters[1], arguments[1], images))
    return false;
  for (std::size_t i = kBeforeOptions; i < parameters.size(); ++i) {
    PyObject* option = PyTuple_GET_ITEM(arguments[4], static_cast<Py_ssize_t>(i - kBeforeOptions));
    if (!push(parameters[i], option, options)) return false;
  }
  return true;
}

PyObject* apply(PyObject* self, PyObject* const* arguments, std::size_t flagged, PyObject* names) {
  return with_errors([&]() -> PyObject* {
    Stack images, options;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    if (names != nullptr || !push_loss(arguments, count, images, options))
      return call_usual(self, arguments, flagged, names);
    at::Tensor loss;
    {
      const WithoutGil without_gil;
      loss = SyncfreeSsimLoss::apply(images[0].toTensor(), images[1].toTensor(),
                                     PyFloat_AS_DOUBLE(arguments[2]), arguments[3] == Py_True,
                                     &options);
    }
    return THPVariable_Wrap(std::move(loss));
  });
}

}  // namespace

PyObject* ssim_loss(PyObject*, PyObject* arguments) {
  PyObject* usual = nullptr;
  if (!PyArg_ParseTuple(arguments, "O", &usual)) return nullptr;
  return with_errors([&]() -> PyObject* {
    if (loss_operators == nullptr) {
      auto ssim = operator_of("syncfree::ssim", "");
      auto quality = operator_of("syncfree::image_quality", "");
      auto together = operator_of("syncfree::ssim_with_gradients", "");
      auto gradients = operator_of("syncfree::ssim_backward", "");
      auto scale = operator_of("syncfree::scale_", "");
      if (!ssim || !quality || !together || !gradients || !scale) return Py_NewRef(usual);
      loss_operators =
          new LossOperators{std::move(*ssim), std::move(*quality), std::move(*together),
                            std::move(*gradients), std::move(*scale)};
    }
    return make_callable(apply, usual, loss_operators);
  });
}

}  // namespace syncfree::call
