// Operators whose gradients are computed by other operators, without Python in either pass.
//
// An autograd.Function in Python costs the host 20 to 50 us more for both passes: for its context
// and frames, for telling tensors from other arguments, and for the GIL in the engine's thread.
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "callable.h"
#include "first_derivative.h"
#include "kept_call.h"
#include "module.h"
#include "operator.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace syncfree::call {

struct Rule;
using Apply = variable_list (*)(const at::Tensor&, const at::Tensor&, const Rule*, Stack*);

// Which operator computes the gradients of which, and how the arguments of both correspond.
struct Rule {
  Operator forward;
  Operator backward;
  Apply apply;
  std::size_t states;              // number of tensors behind the images; backward takes none
  std::vector<std::size_t> slots;  // for each result, its gradient's index in those of backward
  std::size_t kept = 0;            // number of further results: not returned, but kept for backward
  std::size_t gradients = 0;       // number of gradients that backward takes
};

template <class Node>
struct OperatorNode : torch::autograd::Function<Node> {
  static variable_list forward(AutogradContext* context, const at::Tensor& preds,
                               const at::Tensor& target, const Rule* rule, Stack* stack) {
    const auto options = stack->begin() + static_cast<std::ptrdiff_t>(kImages + rule->states);
    keep_call(context, reinterpret_cast<std::int64_t>(rule), {options, stack->end()});
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
    const KeptCall call(context);
    const auto* rule = reinterpret_cast<const Rule*>(call.first().toInt());
    Stack stack;
    stack.reserve(rule->backward.parameters.size());
    for (at::Tensor& saved : context->get_saved_variables()) stack.emplace_back(std::move(saved));
    const std::size_t first = stack.size();
    stack.resize(first + rule->gradients);
    for (std::size_t i = 0; i < arrived.size(); ++i)
      if (arrived[i].defined()) stack[first + rule->slots[i]] = arrived[i];
    const bool needs[] = {context->needs_input_grad(0), context->needs_input_grad(1)};
    stack.insert(stack.end(), {needs[0], needs[1]});
    call.push_options(rule->backward, stack);
    const variable_list gradients = first_derivative(rule->backward, std::move(stack));
    return {needs[0] ? gradients[0] : none, needs[1] ? gradients[1] : none, none, none};
  }
};

}  // namespace syncfree::call

// At global scope, because torch names the nodes of the graph after these types.
#define SYNCFREE_NODE(name) \
  struct name : syncfree::call::OperatorNode<name> {}
SYNCFREE_NODE(SyncfreePsnr);
SYNCFREE_NODE(SyncfreeSsim);
SYNCFREE_NODE(SyncfreeSsimWithMap);
SYNCFREE_NODE(SyncfreeSsimWithContrast);
SYNCFREE_NODE(SyncfreeSsimUpdate);
SYNCFREE_NODE(SyncfreeSsimUpdateWithMap);
SYNCFREE_NODE(SyncfreeSsimUpdateWithContrast);
SYNCFREE_NODE(SyncfreeMultiscaleSsim);
#undef SYNCFREE_NODE

namespace syncfree::call {
namespace {

template <class Node>
variable_list apply_node(const at::Tensor& preds, const at::Tensor& target, const Rule* rule,
                         Stack* stack) {
  return Node::apply(preds, target, rule, stack);
}

Apply apply_of(std::string_view name) {
  const std::pair<std::string_view, Apply> nodes[] = {
      {"syncfree::psnr", apply_node<SyncfreePsnr>},
      {"syncfree::ssim", apply_node<SyncfreeSsim>},
      {"syncfree::ssim_with_map", apply_node<SyncfreeSsimWithMap>},
      {"syncfree::ssim_with_contrast", apply_node<SyncfreeSsimWithContrast>},
      {"syncfree::ssim_update", apply_node<SyncfreeSsimUpdate>},
      {"syncfree::ssim_update_with_map", apply_node<SyncfreeSsimUpdateWithMap>},
      {"syncfree::ssim_update_with_contrast", apply_node<SyncfreeSsimUpdateWithContrast>},
      {"syncfree::multiscale_ssim_with_scales", apply_node<SyncfreeMultiscaleSsim>},
  };
  for (const auto& [known, apply] : nodes)
    if (name == known) return apply;
  return nullptr;
}

PyObject* call_with_gradient(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                             PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& rule = what_calls<Rule>(self);
    Stack stack;
    if (!push_all(rule.forward, arguments, flagged, names, stack) ||
        !takes_nodes(stack[0].toTensor(), stack[1].toTensor()))
      return call_usual(self, arguments, flagged, names);
    const Stack kept = stack;  // holds the tensors until the GIL is back, as in `run`
    Stack results;
    {
      const WithoutGil without_gil;
      const at::Tensor &preds = kept[0].toTensor(), &target = kept[1].toTensor();
      for (at::Tensor& result : rule.apply(preds, target, &rule, &stack))
        results.emplace_back(std::move(result));
    }
    return results_of(std::move(results));
  });
}

// The rule by which `backward` computes the gradients of `forward`. None unless the parameters of
// `backward` are the images, the kept results, gradients, two flags, and the options of `forward`.
std::optional<Rule> rule_of(const char* forward, const char* backward, std::size_t states,
                            std::vector<std::size_t>&& slots) {
  const Apply apply = apply_of(forward);
  auto first = operator_of(forward, "");
  auto second = operator_of(backward, "");
  if (apply == nullptr || !first || !second || slots.empty()) return std::nullopt;
  Rule rule{std::move(*first), std::move(*second), apply, states, std::move(slots)};
  const auto& given = rule.forward.parameters;
  const auto& taken = rule.backward.parameters;
  const std::size_t results = rule.forward.handle.schema().returns().size();
  if (states > given.size() || kImages + states > given.size() || rule.slots.size() > results ||
      rule.backward.handle.schema().returns().size() != kImages)
    return std::nullopt;
  const std::size_t options = given.size() - kImages - states;
  rule.kept = results - rule.slots.size();
  const std::size_t others = 2 * kImages + rule.kept + options;
  if (taken.size() <= others) return std::nullopt;
  rule.gradients = taken.size() - others;
  const std::size_t flags = kImages + rule.kept + rule.gradients;
  const bool fits = are_tensors(rule.forward, 0, kImages + states) &&
                    are_tensors(rule.backward, 0, flags) && taken[flags].kind == Kind::kBool &&
                    taken[flags + 1].kind == Kind::kBool &&
                    std::equal(given.end() - static_cast<std::ptrdiff_t>(options), given.end(),
                               taken.end() - static_cast<std::ptrdiff_t>(options), taken.end()) &&
                    std::all_of(rule.slots.begin(), rule.slots.end(),
                                [&](std::size_t slot) { return slot < rule.gradients; });
  return fits ? std::optional(std::move(rule)) : std::nullopt;
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
    return make_callable(call_with_gradient, usual, new Rule(std::move(*rule)));
  });
}

}  // namespace syncfree::call
