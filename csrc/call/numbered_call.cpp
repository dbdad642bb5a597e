// Runs operators whose calls have numbers, and answers their errors.
#include "numbered_call.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/object_ptr.h>

#include <utility>
#include <vector>

#include "callable.h"
#include "module.h"

namespace syncfree::call {
namespace {

// False with an error set.
bool number_call(const NumberedOperator& call, Stack& stack) {
  c10::IValue& value = stack[stack.size() - 2];
  if ((value.toInt() & call.has_number) == 0) return true;
  THPObjectPtr flags(PyLong_FromLongLong(value.toInt()));
  THPObjectPtr numbered(flags ? PyObject_CallOneArg(call.number, flags.get()) : nullptr);
  if (!numbered) return false;
  value = static_cast<std::int64_t>(PyLong_AsLongLong(numbered.get()));
  return PyErr_Occurred() == nullptr;
}

// Of the error that is set.
PyObject* answer_failure(const NumberedOperator& call, PyObject* const* arguments,
                         std::size_t count) {
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
    return nullptr;
  PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  if (trace != nullptr) PyException_SetTraceback(error, trace);
  THPObjectPtr held[] = {THPObjectPtr(type), THPObjectPtr(error), THPObjectPtr(trace)};
  std::vector<PyObject*> all{error};
  all.insert(all.end(), arguments, arguments + count);
  return PyObject_Vectorcall(call.failed, all.data(), all.size(), nullptr);
}

// The tensors of a call in a tuple, as are its own options; flags; the last option.
constexpr std::size_t kGroups = 4;

bool push_groups(const Operator& op, PyObject* const* groups, Stack& stack) {
  if (!PyTuple_CheckExact(groups[0]) || !PyTuple_CheckExact(groups[1])) return false;
  stack.reserve(op.parameters.size());
  const auto push_next = [&](PyObject* object) {
    return stack.size() < op.parameters.size() && push(op.parameters[stack.size()], object, stack);
  };
  for (PyObject* group : {groups[0], groups[1]})
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(group); ++i)
      if (!push_next(PyTuple_GET_ITEM(group, i))) return false;
  return push_next(groups[2]) && push_next(groups[3]) && stack.size() == op.parameters.size();
}

PyObject* call_numbered(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                        PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& call = what_calls<NumberedOperator>(self);
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    Stack stack;
    if (count != kGroups || !is_plain(names) || !push_groups(call.op, arguments, stack))
      return call_usual(self, arguments, flagged, names);
    return run(call, std::move(stack), arguments, count);
  });
}

}  // namespace

std::optional<NumberedOperator> numbered_operator(const char* name, const char* overload,
                                                  PyObject* number, std::int64_t has_number,
                                                  PyObject* failed) {
  auto op = operator_of(name, overload);
  if (!op || op->parameters.size() < 2 ||
      op->parameters[op->parameters.size() - 2] != Parameter{Kind::kInt})
    return std::nullopt;
  return NumberedOperator{std::move(*op), Py_NewRef(number), has_number, Py_NewRef(failed)};
}

bool is_plain(PyObject* names) {
  return names == nullptr && !function_mode_is_on() && !c10::impl::dispatch_mode_enabled() &&
         !torch::jit::tracer::isTracing();
}

PyObject* run(const NumberedOperator& call, Stack&& stack, PyObject* const* arguments,
              std::size_t count) {
  if (!number_call(call, stack)) return nullptr;
  PyObject* const result = with_errors([&] { return run(call.op, std::move(stack)); });
  return result != nullptr ? result : answer_failure(call, arguments, count);
}

PyObject* numbered(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *overload = nullptr;
  PyObject *number = nullptr, *failed = nullptr, *usual = nullptr;
  long long has_number = 0;
  if (!PyArg_ParseTuple(arguments, "ssOLOO", &name, &overload, &number, &has_number, &failed,
                        &usual))
    return nullptr;
  return with_errors([&]() -> PyObject* {
    auto call = numbered_operator(name, overload, number, has_number, failed);
    if (!call) return Py_NewRef(usual);
    return make_callable(call_numbered, usual, new NumberedOperator(std::move(*call)));
  });
}

}  // namespace syncfree::call
