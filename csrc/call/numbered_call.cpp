// Runs operators whose calls have numbers, and handles their errors.
#include "numbered_call.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/object_ptr.h>

#include <utility>
#include <vector>

namespace syncfree::call {
namespace {

// Returns false with an error set.
bool number_call(const NumberedOperator& call, Stack& stack) {
  c10::IValue& value = stack[stack.size() - 2];
  if ((value.toInt() & call.has_number) == 0) return true;
  THPObjectPtr flags(PyLong_FromLongLong(value.toInt()));
  THPObjectPtr numbered(flags ? PyObject_CallOneArg(call.number, flags.get()) : nullptr);
  if (!numbered) return false;
  value = static_cast<std::int64_t>(PyLong_AsLongLong(numbered.get()));
  return PyErr_Occurred() == nullptr;
}

// What `failed` answers to the error that is set; other errors stay set.
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

}  // namespace syncfree::call
