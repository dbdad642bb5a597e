// Calls of an operator for two tensors and options, which Python checks once for each set of them.
//
// A metric's options are the same in every step of a loop. To look them up in Python and to reach
// the operator from there takes three frames, half a microsecond of the host's eight.
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/object_ptr.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "callable.h"
#include "module.h"
#include "operator.h"

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
  Operator op;
  PyObject* check;          // options -> (own, flags, last)
  PyObject* number;         // flags -> the same with a number for this call
  std::int64_t has_number;  // a bit of the flags of calls that get one
  PyObject* failed;         // (error, preds, target, *options): an answer all the same, or raises
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

Options* find(const CheckedOperator& call, PyObject* const* given, std::size_t count) {
  for (Options& each : call.kept) {
    if (!each.flags || each.given.size() != count) continue;
    std::size_t same = 0;
    while (same < count && is_same(given[same], each.given[same].get())) ++same;
    if (same == count) return &each;
  }
  return nullptr;
}

// Without `flags` where the check refuses, which leaves an error, or gives what is not known here.
Options check(const CheckedOperator& call, PyObject* const* given, std::size_t count) {
  Options options;
  THPObjectPtr checked(PyObject_Vectorcall(call.check, given, count, nullptr));
  if (!checked || !PyTuple_CheckExact(checked.get()) || PyTuple_GET_SIZE(checked.get()) != 3)
    return options;
  PyObject* const own = PyTuple_GET_ITEM(checked.get(), 0);
  PyObject* const flags = PyTuple_GET_ITEM(checked.get(), 1);
  if (!PyTuple_CheckExact(own) || !PyLong_CheckExact(flags)) return options;
  std::vector<PyObject*> values(PySequence_Fast_ITEMS(own),
                                PySequence_Fast_ITEMS(own) + PyTuple_GET_SIZE(own));
  values.insert(values.end(), {flags, PyTuple_GET_ITEM(checked.get(), 2)});
  const auto& parameters = call.op.parameters;
  if (values.size() + kTensors != parameters.size()) return options;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!push(parameters[kTensors + i], values[i], options.taken)) return options;
  options.flags = Py_NewRef(flags);
  for (std::size_t i = 0; i < count; ++i) options.given.emplace_back(Py_NewRef(given[i]));
  return options;
}

bool are_constants(Options& options) {
  for (THPObjectPtr& each : options.given)
    if (!is_constant(each.get())) return false;
  return true;
}

// `stack` ends with the options, of which `flags` may get a number. False with an error set.
bool number_call(const CheckedOperator& call, THPObjectPtr flags, Stack& stack) {
  c10::IValue& value = stack[stack.size() - 2];
  if ((value.toInt() & call.has_number) == 0) return true;
  THPObjectPtr numbered(PyObject_CallOneArg(call.number, flags.get()));
  if (!numbered) return false;
  value = static_cast<std::int64_t>(PyLong_AsLongLong(numbered.get()));
  return PyErr_Occurred() == nullptr;
}

// The error is that of the operator.
PyObject* answer_failure(const CheckedOperator& call, PyObject* const* arguments,
                         std::size_t count) {
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
    return nullptr;
  PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  THPObjectPtr held[] = {THPObjectPtr(type), THPObjectPtr(error), THPObjectPtr(trace)};
  std::vector<PyObject*> all{error};
  all.insert(all.end(), arguments, arguments + count);
  return PyObject_Vectorcall(call.failed, all.data(), all.size(), nullptr);
}

PyObject* call_checked(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                       PyObject* names) {
  const auto& call = what_calls<CheckedOperator>(self);
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
  bool ran = false;
  PyObject* const result = with_errors([&]() -> PyObject* {
    Stack stack;
    stack.reserve(call.op.parameters.size());
    // What is recorded runs at other places than here, perhaps in a process with other numbers.
    if (names != nullptr || count < kTensors || function_mode_is_on() ||
        c10::impl::dispatch_mode_enabled() || torch::jit::tracer::isTracing() ||
        !push(call.op.parameters[0], arguments[0], stack) ||
        !push(call.op.parameters[1], arguments[1], stack))
      return call_usual(self, arguments, flagged, names);
    Options fresh;
    Options* options = find(call, arguments + kTensors, count - kTensors);
    if (options == nullptr) {
      fresh = check(call, arguments + kTensors, count - kTensors);
      if (!fresh.flags)
        return PyErr_Occurred() ? nullptr : call_usual(self, arguments, flagged, names);
      options = &fresh;
    }
    stack.insert(stack.end(), options->taken.begin(), options->taken.end());
    THPObjectPtr flags(Py_NewRef(options->flags.get()));
    if (options == &fresh && are_constants(fresh))
      call.kept[call.oldest++ % kKept] = std::move(fresh);
    if (!number_call(call, std::move(flags), stack)) return nullptr;
    const Stack kept = stack;  // until the GIL is back, as in call.cpp
    ran = true;
    {
      const WithoutGil without_gil;
      call.op.handle.callBoxed(stack);
    }
    return results_of(std::move(stack));
  });
  return result == nullptr && ran ? answer_failure(call, arguments, count) : result;
}

bool takes_tensors_first(const Operator& op) {
  if (op.parameters.size() < kTensors + 2) return false;
  for (std::size_t i = 0; i < kTensors; ++i)
    if (op.parameters[i] != Parameter{Kind::kTensor}) return false;
  return op.parameters[op.parameters.size() - 2] == Parameter{Kind::kInt};
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
    auto op = operator_of(name, overload);
    if (!op || !takes_tensors_first(*op)) return Py_NewRef(usual);
    auto* what = new CheckedOperator{std::move(*op), Py_NewRef(check), Py_NewRef(number),
                                     has_number, Py_NewRef(failed)};
    return make_callable(call_checked, usual, what);
  });
}

}  // namespace syncfree::call
