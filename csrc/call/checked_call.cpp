// Calls an operator on two tensors and options; Python checks each set of options once.
#include <cstddef>
#include <utility>

#include "callable.h"
#include "kept_options.h"
#include "module.h"
#include "numbered_call.h"

namespace syncfree::call {
namespace {

constexpr std::size_t kTensors = 2;

struct CheckedOperator {
  NumberedOperator call;
  KeptOptions options;
};

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
    if (!checked.options.push(arguments + kTensors, count - kTensors, stack))
      return PyErr_Occurred() ? nullptr : call_usual(self, arguments, flagged, names);
    return run(checked.call, std::move(stack), arguments, count);
  });
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
    if (!call || !are_tensors(call->op, 0, kTensors)) return Py_NewRef(usual);
    KeptOptions options(check, parameters_behind(call->op, kTensors));
    return make_callable(call_checked, usual,
                         new CheckedOperator{std::move(*call), std::move(options)});
  });
}

}  // namespace syncfree::call
