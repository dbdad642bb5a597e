// Calls of an operator for two tensors and options, which Python checks once for each set of them.
//
// A metric's options are the same in every step of a loop. To look them up in Python and to reach
// the operator from there takes three frames, half a microsecond of the host's eight.
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "callable.h"
#include "module.h"
#include "numbered_call.h"

namespace syncfree::call {
namespace {

constexpr std::size_t kTensors = 2;
constexpr std::size_t kKept = 8;

// As Python gave them, and as the operator takes them: the last but one is `flags`.
struct Options {
  std::vector<THPObjectPtr> given;
  Stack taken;
  THPObjectPtr flags;
};

struct CheckedOperator {
  NumberedOperator call;
  PyObject* check;  // options -> (own, flags, last)
  mutable std::array<Options, kKept> kept = {};
  mutable std::size_t oldest = 0;
};

bool is_constant(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
}

// Equal numbers of two types may mean different things.
bool is_same(PyObject* one, PyObject* constant) {
  if (one == constant) return true;
  return Py_TYPE(one) == Py_TYPE(constant) && is_constant(one) &&
         PyObject_RichCompareBool(one, constant, Py_EQ) == 1;
}

Options* find(const CheckedOperator& checked, PyObject* const* given, std::size_t count) {
  for (Options& each : checked.kept) {
    if (!each.flags || each.given.size() != count) continue;
    std::size_t same = 0;
    while (same < count && is_same(given[same], each.given[same].get())) ++same;
    if (same == count) return &each;
  }
  return nullptr;
}

// Without `flags` where the check refuses, which leaves an error, or gives what is not known here.
Options check(const CheckedOperator& checked, PyObject* const* given, std::size_t count) {
  Options options;
  THPObjectPtr answer(PyObject_Vectorcall(checked.check, given, count, nullptr));
  if (!answer || !PyTuple_CheckExact(answer.get()) || PyTuple_GET_SIZE(answer.get()) != 3)
    return options;
  PyObject* const own = PyTuple_GET_ITEM(answer.get(), 0);
  PyObject* const flags = PyTuple_GET_ITEM(answer.get(), 1);
  if (!PyTuple_CheckExact(own)) return options;
  std::vector<PyObject*> values(PySequence_Fast_ITEMS(own),
                                PySequence_Fast_ITEMS(own) + PyTuple_GET_SIZE(own));
  values.insert(values.end(), {flags, PyTuple_GET_ITEM(answer.get(), 2)});
  const auto& parameters = checked.call.op.parameters;
  if (values.size() + kTensors != parameters.size()) return options;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!push(parameters[kTensors + i], values[i], options.taken)) return options;
  for (std::size_t i = 0; i < count; ++i) options.given.emplace_back(Py_NewRef(given[i]));
  options.flags = Py_NewRef(flags);
  return options;
}

bool are_constants(Options& options) {
  for (THPObjectPtr& each : options.given)
    if (!is_constant(each.get())) return false;
  return true;
}

PyObject* call_checked(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                       PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& checked = what_calls<CheckedOperator>(self);
    const auto& parameters = checked.call.op.parameters;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    Stack stack;
    stack.reserve(parameters.size());
    if (count < kTensors || !is_plain(names) || !push(parameters[0], arguments[0], stack) ||
        !push(parameters[1], arguments[1], stack))
      return call_usual(self, arguments, flagged, names);
    Options fresh;
    Options* options = find(checked, arguments + kTensors, count - kTensors);
    if (options == nullptr) {
      fresh = check(checked, arguments + kTensors, count - kTensors);
      if (!fresh.flags)
        return PyErr_Occurred() ? nullptr : call_usual(self, arguments, flagged, names);
      options = &fresh;
    }
    stack.insert(stack.end(), options->taken.begin(), options->taken.end());
    THPObjectPtr flags(Py_NewRef(options->flags.get()));
    if (options == &fresh && are_constants(fresh))
      checked.kept[checked.oldest++ % kKept] = std::move(fresh);
    return run(checked.call, std::move(stack), std::move(flags), arguments, count);
  });
}

bool takes_tensors_first(const Operator& op) {
  for (std::size_t i = 0; i < kTensors; ++i)
    if (i == op.parameters.size() || op.parameters[i] != Parameter{Kind::kTensor}) return false;
  return true;
}

}  // namespace

PyObject* checked(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *overload = nullptr;
  PyObject *check = nullptr, *number = nullptr, *failed = nullptr, *usual = nullptr;
  long long has_number = 0;
  if (!PyArg_ParseTuple(arguments, "ssOOLOO", &name, &overload, &check, &number, &has_number,
                        &failed, &usual))
    return nullptr;
  return with_errors([&]() -> PyObject* {
    auto call = numbered_operator(name, overload, number, has_number, failed);
    if (!call || !takes_tensors_first(call->op)) return Py_NewRef(usual);
    return make_callable(call_checked, usual,
                         new CheckedOperator{std::move(*call), Py_NewRef(check)});
  });
}

}  // namespace syncfree::call
