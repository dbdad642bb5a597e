// Keeps the call in a form that compiled autograd passes on unchanged.
#include "kept_call.h"

#include <string>
#include <utility>

namespace syncfree::call {
namespace {

constexpr char kCall[] = "call";
// Stands for an empty list, whose element type is lost on the way through Python.
constexpr char kNoElements[] = "[]";

bool is_empty_list(const c10::IValue& value) {
  return value.isList() && value.toListRef().empty();
}

c10::IValue empty_list(Kind kind) {
  return kind == Kind::kFloats ? c10::IValue(std::vector<double>())
                               : c10::IValue(std::vector<std::int64_t>());
}

}  // namespace

// All in one list: compiled autograd takes numbers outside of lists for inputs of its graph.
void keep_call(torch::autograd::AutogradContext* context, c10::IValue first, const Stack& options) {
  c10::List<c10::IValue> list(c10::AnyType::get());
  list.reserve(options.size() + 1);
  list.push_back(std::move(first));
  for (const c10::IValue& option : options)
    list.push_back(is_empty_list(option) ? c10::IValue(kNoElements) : option);
  context->saved_data.emplace(kCall, std::move(list));
}

KeptCall::KeptCall(torch::autograd::AutogradContext* context)
    : list_(context->saved_data.at(kCall).toList()) {}

void KeptCall::push_options(const Operator& op, Stack& stack) const {
  const std::size_t count = list_.size() - 1, before = op.parameters.size() - count;
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue option = list_.get(i + 1);
    stack.push_back(option.isString() ? empty_list(op.parameters[before + i].kind) : option);
  }
}

}  // namespace syncfree::call
