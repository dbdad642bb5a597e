// Calls of an operator from Python past the work that torch does for operators of any signature.
//
// torch's own way takes arguments as tuple and dict, asks each of them for an override, converts
// it by the type in the schema, and finds out what the results are: 2.3 us of a small metric's call
// on an H200's host. Here the signature is looked at once, when the callable is made, which halves
// that. What runs is the same, torch's dispatcher with all its keys: autograd, modes, profilers.
//
// Whatever is not plain (keywords, subclasses of tensors, function modes) goes torch's own way.
//
// This needs torch's C++ interface and Python's, which are kept within one minor version of each.
// So it is a module apart from all others, and optional.
#include <utility>

#include "callable.h"
#include "module.h"
#include "operator.h"

namespace syncfree::call {
namespace {

PyObject* call_operator(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                        PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& op = what_calls<Operator>(self);
    Stack stack;
    if (!push_all(op, arguments, flagged, names, stack))
      return call_usual(self, arguments, flagged, names);
    return run(op, std::move(stack));
  });
}

}  // namespace

PyObject* quick(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *overload = nullptr;
  PyObject* usual = nullptr;
  if (!PyArg_ParseTuple(arguments, "ssO", &name, &overload, &usual)) return nullptr;
  return with_errors([&]() -> PyObject* {
    auto op = operator_of(name, overload);
    if (!op) return Py_NewRef(usual);
    return make_callable(call_operator, usual, new Operator(std::move(*op)));
  });
}

}  // namespace syncfree::call
