// weight * (1 - SSIM) + (1 - weight) * mean absolute error with its gradient, without Python.
//
// Does what `SsimLoss` in python/syncfree/losses does, in the same order; the reasons stand there.
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/rsub.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "callable.h"
#include "first_derivative.h"
#include "kept_call.h"
#include "module.h"
#include "operator.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace syncfree::call {
namespace {

constexpr std::size_t kBeforeOptions = 5;  // parameters of `together`: images, weight, flags

struct LossOperators {
  Operator ssim, image_quality, together, gradients, may_scale, scale;
};

const LossOperators* loss_operators = nullptr;

// Whether it stands for several tensors, as under `is_grads_batched=True`.
bool is_batched(const at::Tensor& tensor) {
  return tensor.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched}));
}

// Gradients that were computed with the value, for the first backward pass. They are attached to
// the node as a hook that does nothing. Kept in the context, they would become inputs of compiled
// autograd's graph, which would hand the same memory to each pass.
class KeptGradients : public torch::autograd::FunctionPostHook {
 public:
  mutable variable_list gradients;

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    return outputs;
  }
  // The compiled graph computes the gradients anew.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    gradients.clear();
  }
};

}  // namespace
}  // namespace syncfree::call

// At global scope, because torch names the node of the graph after this type.
struct SyncfreeSsimLoss : torch::autograd::Function<SyncfreeSsimLoss> {
  using Stack = syncfree::call::Stack;

  // Also computes the gradients in the same pass, unless `gradients` is null.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& preds,
                            const at::Tensor& target, double weight, variable_list* gradients,
                            Stack* options) {
    syncfree::call::keep_call(context, weight, *options);
    context->set_materialize_grads(false);
    context->save_for_backward({preds, target});

    const auto& operators = *syncfree::call::loss_operators;
    Stack stack{preds, target};
    stack.reserve(syncfree::call::kBeforeOptions + options->size());
    if (gradients != nullptr) {
      stack.insert(stack.end(), {weight, preds.requires_grad(), target.requires_grad()});
      stack.insert(stack.end(), options->begin(), options->end());
      operators.together.handle.callBoxed(stack);
      *gradients = {stack[1].toTensor(), stack[2].toTensor()};
      return stack[0].toTensor();
    }
    if (weight == 1) {
      stack.insert(stack.end(), options->begin(), options->end());
      operators.ssim.handle.callBoxed(stack);
      return at::rsub(stack[0].toTensor(), 1.0);
    }
    stack.insert(stack.end(), options->begin(), options->end() - 1);  // no `valid`: always mirrored
    operators.image_quality.handle.callBoxed(stack);
    const at::Tensor of_ssim = at::rsub(stack[1].toTensor(), weight, weight);
    return at::add(of_ssim, stack[2].toTensor(), 1 - weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor none;
    const at::Tensor& arrived = grads[0];
    const variable_list kept = take_gradients(context);
    if (!arrived.defined()) return {none, none, none, none, none};
    const auto& operators = *syncfree::call::loss_operators;
    const variable_list images = context->get_saved_variables();  // raises if an image has changed
    const bool needs[] = {context->needs_input_grad(0), context->needs_input_grad(1)};
    const bool differs = at::GradMode::is_enabled() || syncfree::call::is_batched(arrived) ||
                         torch::jit::tracer::isTracing();
    if (!kept.empty() && !differs) {
      Stack stack{kept[0], kept[1], arrived}, question = stack;
      operators.may_scale.handle.callBoxed(question);
      if (question[0].toBool()) {
        operators.scale.handle.callBoxed(stack);
        return {needs[0] ? kept[0] : none, needs[1] ? kept[1] : none, none, none, none};
      }
    }
    const syncfree::call::KeptCall call(context);
    const double weight = call.first().toDouble();
    Stack stack{images[0], images[1], weight == 1 ? at::neg(arrived) : at::mul(arrived, -weight)};
    stack.resize(7);  // no gradients for contrast, map and squared error
    if (weight != 1) {
      const auto count = static_cast<double>(std::max<std::int64_t>(images[0].numel(), 1));
      stack[6] = at::mul(arrived, (1 - weight) / count).expand({images[0].size(0)});
    }
    stack.insert(stack.end(), {needs[0], needs[1]});
    call.push_options(operators.gradients, stack);
    const variable_list gradients =
        syncfree::call::first_derivative(operators.gradients, std::move(stack));
    return {needs[0] ? gradients[0] : none, needs[1] ? gradients[1] : none, none, none, none};
  }

 private:
  // Takes the kept gradients. A second backward pass finds none (torch runs one pass of a node at a
  // time), and neither does a caller that bypasses the engine: the current node is then null, or
  // that of another loss.
  static variable_list take_gradients(const AutogradContext* context) {
    const auto node = torch::autograd::get_current_node();
    const auto* own = dynamic_cast<torch::autograd::CppNode<SyncfreeSsimLoss>*>(node.get());
    if (own == nullptr || &own->ctx_ != context) return {};
    for (const auto& hook : own->post_hooks())
      if (const auto* kept = dynamic_cast<syncfree::call::KeptGradients*>(hook.get()))
        return std::exchange(kept->gradients, {});
    return {};
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
      !push(parameters[0], arguments[0], images) || !push(parameters[1], arguments[1], images) ||
      !takes_nodes(images[0].toTensor(), images[1].toTensor()))
    return false;
  for (std::size_t i = kBeforeOptions; i < parameters.size(); ++i) {
    PyObject* option = PyTuple_GET_ITEM(arguments[4], static_cast<Py_ssize_t>(i - kBeforeOptions));
    if (!push(parameters[i], option, options)) return false;
  }
  return true;
}

PyObject* call_loss(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                    PyObject* names) {
  return with_errors([&]() -> PyObject* {
    Stack images, options;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    if (names != nullptr || !push_loss(arguments, count, images, options))
      return call_usual(self, arguments, flagged, names);
    const double weight = PyFloat_AS_DOUBLE(arguments[2]);
    auto kept = arguments[3] == Py_True ? std::make_unique<KeptGradients>() : nullptr;
    at::Tensor loss;
    {
      const WithoutGil without_gil;
      loss = SyncfreeSsimLoss::apply(images[0].toTensor(), images[1].toTensor(), weight,
                                     kept ? &kept->gradients : nullptr, &options);
      if (kept && loss.grad_fn()) loss.grad_fn()->add_post_hook(std::move(kept));
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
      auto may_scale = operator_of("syncfree::may_scale", "");
      auto scale = operator_of("syncfree::scale_", "");
      if (!ssim || !quality || !together || !gradients || !may_scale || !scale)
        return Py_NewRef(usual);
      loss_operators =
          new LossOperators{std::move(*ssim),      std::move(*quality),   std::move(*together),
                            std::move(*gradients), std::move(*may_scale), std::move(*scale)};
    }
    return make_callable(call_loss, usual, loss_operators);
  });
}

}  // namespace syncfree::call
