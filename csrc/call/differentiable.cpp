// Operators whose gradients other operators find, without Python in the forward or backward pass.
//
// An autograd.Function in Python takes the host about 20 us more for both passes: its context and
// frames, arguments of which each is a tensor or not, and the GIL in the engine's thread.
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "callable.h"
#include "first_derivative.h"
#include "module.h"
#include "operator.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace syncfree::call {
namespace {

constexpr std::size_t kImages = 2;

struct Rule {
  Operator forward;
  Operator backward;
  std::size_t states = 0;          // tensors behind the images, of which backward knows nothing
  std::vector<std::size_t> slots;  // of each result's gradient, among those that backward takes
  std::size_t kept = 0;            // results behind those, which are not returned but kept
  std::size_t gradients = 0;       // that backward takes

  bool fits() const {
    const auto options = forward.parameters.size() - kImages - states;
    return forward.parameters.size() >= kImages + states && !slots.empty() &&
           backward.parameters.size() == kImages + kept + gradients + kImages + options &&
           std::all_of(slots.begin(), slots.end(), [&](auto slot) { return slot < gradients; });
  }
};

}  // namespace
}  // namespace syncfree::call

// At global scope for its name, which torch makes that of the graph's node.
struct SyncfreeOperator : torch::autograd::Function<SyncfreeOperator> {
  using Rule = syncfree::call::Rule;
  using Stack = syncfree::call::Stack;

  static variable_list forward(AutogradContext* context, const at::Tensor& preds,
                               const at::Tensor& target, const Rule* rule, Stack* stack) {
    // One list, for what stands in lists is no number that compiled autograd would trace.
    c10::List<c10::IValue> call(c10::AnyType::get());
    call.reserve(stack->size());
    call.push_back(reinterpret_cast<std::int64_t>(rule));
    const auto options = stack->begin() + syncfree::call::kImages + rule->states;
    for (auto option = options; option != stack->end(); ++option) call.push_back(*option);
    context->saved_data.emplace("call", std::move(call));
    context->set_materialize_grads(false);

    rule->forward.handle.callBoxed(*stack);
    variable_list returned, saved{preds, target};
    for (const c10::IValue& result : *stack)
      (returned.size() < rule->slots.size() ? returned : saved).push_back(result.toTensor());
    context->save_for_backward(std::move(saved));
    return returned;
  }

  static variable_list backward(AutogradContext* context, const variable_list& arrived) {
    const at::Tensor none;
    const auto is_defined = [](const at::Tensor& each) { return each.defined(); };
    if (std::none_of(arrived.begin(), arrived.end(), is_defined)) return {none, none, none, none};
    const auto call = context->saved_data.at("call").toList();
    const auto* rule = reinterpret_cast<const Rule*>(call.get(0).toInt());
    Stack stack;
    stack.reserve(rule->backward.parameters.size());
    for (at::Tensor& saved : context->get_saved_variables()) stack.emplace_back(std::move(saved));
    const std::size_t first = stack.size();
    stack.resize(first + rule->gradients);
    for (std::size_t i = 0; i < arrived.size(); ++i)
      if (arrived[i].defined()) stack[first + rule->slots[i]] = arrived[i];
    const bool needs[] = {context->needs_input_grad(0), context->needs_input_grad(1)};
    stack.insert(stack.end(), {needs[0], needs[1]});
    for (std::size_t i = 1; i < call.size(); ++i) stack.push_back(call.get(i));
    const variable_list gradients =
        syncfree::call::first_derivative(rule->backward, std::move(stack));
    return {needs[0] ? gradients[0] : none, needs[1] ? gradients[1] : none, none, none};
  }
};

namespace syncfree::call {
namespace {

PyObject* apply(PyObject* self, PyObject* const* arguments, std::size_t flagged, PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& rule = what_calls<Rule>(self);
    Stack stack;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    if (names != nullptr || !push_all(rule.forward, arguments, count, stack))
      return call_usual(self, arguments, flagged, names);
    const Stack kept = stack;  // as for a call without a gradient
    Stack results;
    {
      const WithoutGil without_gil;
      const at::Tensor &preds = kept[0].toTensor(), &target = kept[1].toTensor();
      for (at::Tensor& result : SyncfreeOperator::apply(preds, target, &rule, &stack))
        results.emplace_back(std::move(result));
    }
    return results_of(std::move(results));
  });
}

std::optional<Rule> rule_of(const char* forward, const char* backward, std::size_t states,
                            std::vector<std::size_t>&& slots) {
  auto first = operator_of(forward, "");
  auto second = operator_of(backward, "");
  if (!first || !second) return std::nullopt;
  const std::size_t results = first->handle.schema().returns().size();
  const std::size_t options = first->parameters.size() - kImages - states;
  if (results < slots.size()) return std::nullopt;
  Rule rule{std::move(*first), std::move(*second), states, std::move(slots)};
  rule.kept = results - rule.slots.size();
  rule.gradients = rule.backward.parameters.size() - options - 2 * kImages - rule.kept;
  return rule.fits() ? std::optional(std::move(rule)) : std::nullopt;
}

}  // namespace

PyObject* differentiable(PyObject*, PyObject* arguments) {
  const char *forward = nullptr, *backward = nullptr;
  Py_ssize_t states = 0;
  PyObject *slot_numbers = nullptr, *usual = nullptr;
  if (!PyArg_ParseTuple(arguments, "ssnO!O", &forward, &backward, &states, &PyTuple_Type,
                        &slot_numbers, &usual))
    return nullptr;
  return with_errors([&]() -> PyObject* {
    std::vector<std::size_t> slots;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slot_numbers); ++i)
      slots.push_back(PyLong_AsSize_t(PyTuple_GET_ITEM(slot_numbers, i)));
    if (PyErr_Occurred()) return nullptr;
    auto rule = rule_of(forward, backward, static_cast<std::size_t>(states), std::move(slots));
    if (!rule) return Py_NewRef(usual);
    return make_callable(apply, usual, new Rule(std::move(*rule)));
  });
}

}  // namespace syncfree::call
