// Inspects signatures of operators, and converts values between Python and torch's stack.
#include "operator.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <utility>

namespace syncfree::call {
namespace {

std::optional<Parameter> parameter_of(const c10::TypePtr& type) {
  if (const auto inner = type->cast<c10::OptionalType>()) {
    auto parameter = parameter_of(inner->getElementType());
    if (parameter) parameter->optional = true;
    return parameter;
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Parameter{Kind::kTensor};
    case c10::TypeKind::IntType:
      return Parameter{Kind::kInt};
    case c10::TypeKind::FloatType:
      return Parameter{Kind::kFloat};
    case c10::TypeKind::BoolType:
      return Parameter{Kind::kBool};
    case c10::TypeKind::ListType:
      break;
    default:
      return std::nullopt;
  }
  switch (type->expectRef<c10::ListType>().getElementType()->kind()) {
    case c10::TypeKind::IntType:
      return Parameter{Kind::kInts};
    case c10::TypeKind::FloatType:
      return Parameter{Kind::kFloats};
    default:
      return std::nullopt;
  }
}

// False for an object that is not exactly of the type: torch may convert or refuse it.
bool push_int(PyObject* object, std::vector<std::int64_t>& values) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  values.push_back(PyLong_AsLongLongAndOverflow(object, &overflow));
  return overflow == 0;
}

bool push_float(PyObject* object, std::vector<double>& values) {
  if (!PyFloat_CheckExact(object)) return false;
  values.push_back(PyFloat_AS_DOUBLE(object));
  return true;
}

template <class T>
bool push_list(PyObject* object, bool (*push)(PyObject*, std::vector<T>&), Stack& stack) {
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return false;
  std::vector<T> values;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  values.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!push(PySequence_Fast_GET_ITEM(object, i), values)) return false;
  stack.emplace_back(std::move(values));
  return true;
}

}  // namespace

std::optional<Operator> operator_of(const char* name, const char* overload) {
  Operator op{c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), {}};
  const c10::FunctionSchema& schema = op.handle.schema();
  for (const c10::Argument& argument : schema.arguments()) {
    const auto parameter = parameter_of(argument.type());
    if (!parameter) return std::nullopt;
    op.parameters.push_back(*parameter);
  }
  const auto& results = schema.returns();
  const auto are_all = [&](c10::TypeKind kind) {
    return std::all_of(results.begin(), results.end(),
                       [&](const c10::Argument& result) { return result.type()->kind() == kind; });
  };
  const bool known = are_all(c10::TypeKind::TensorType) ||
                     (results.size() == 1 && are_all(c10::TypeKind::BoolType));
  return known ? std::optional(std::move(op)) : std::nullopt;
}

bool are_tensors(const Operator& op, std::size_t begin, std::size_t count) {
  return begin + count <= op.parameters.size() &&
         std::all_of(op.parameters.begin() + static_cast<std::ptrdiff_t>(begin),
                     op.parameters.begin() + static_cast<std::ptrdiff_t>(begin + count),
                     [](const Parameter& each) { return each.kind == Kind::kTensor; });
}

std::vector<Parameter> parameters_behind(const Operator& op, std::size_t count) {
  return {op.parameters.begin() + static_cast<std::ptrdiff_t>(count), op.parameters.end()};
}

bool push(const Parameter& parameter, PyObject* object, Stack& stack) {
  if (object == Py_None) {
    stack.emplace_back();
    return parameter.optional;
  }
  switch (parameter.kind) {
    case Kind::kTensor:
      if (!THPVariable_CheckExact(object)) return false;
      stack.emplace_back(THPVariable_Unpack(object));
      return true;
    case Kind::kInt: {
      int overflow = 0;
      if (!PyLong_CheckExact(object)) return false;
      stack.emplace_back(
          static_cast<std::int64_t>(PyLong_AsLongLongAndOverflow(object, &overflow)));
      return overflow == 0;
    }
    case Kind::kFloat:
      if (!PyFloat_CheckExact(object)) return false;
      stack.emplace_back(PyFloat_AS_DOUBLE(object));
      return true;
    case Kind::kBool:
      if (!PyBool_Check(object)) return false;
      stack.emplace_back(object == Py_True);
      return true;
    case Kind::kInts:
      return push_list(object, push_int, stack);
    case Kind::kFloats:
      return push_list(object, push_float, stack);
  }
  return false;
}

bool function_mode_is_on() {
  return at::impl::torch_function_mode_enabled();
}

bool push_all(const Operator& op, PyObject* const* arguments, std::size_t flagged, PyObject* names,
              Stack& stack) {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
  if (names != nullptr || count != op.parameters.size() || function_mode_is_on()) return false;
  stack.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    if (!push(op.parameters[i], arguments[i], stack)) return false;
  return true;
}

bool takes_nodes(const at::Tensor& preds, const at::Tensor& target) {
  return !preds.is_nested() && !target.is_nested() && !torch::jit::tracer::isTracing();
}

PyObject* results_of(Stack&& stack) {
  if (stack.empty()) Py_RETURN_NONE;
  if (stack.size() == 1) {
    if (stack[0].isBool()) return PyBool_FromLong(stack[0].toBool());
    return THPVariable_Wrap(std::move(stack[0]).toTensor());
  }
  PyObject* results = PyTuple_New(static_cast<Py_ssize_t>(stack.size()));
  for (std::size_t i = 0; results != nullptr && i < stack.size(); ++i) {
    PyObject* result = THPVariable_Wrap(std::move(stack[i]).toTensor());
    if (result == nullptr)
      Py_CLEAR(results);
    else
      PyTuple_SET_ITEM(results, static_cast<Py_ssize_t>(i), result);
  }
  return results;
}

PyObject* run(const Operator& op, Stack&& stack) {
  // Holds the tensors until the GIL is back: torch takes the GIL to drop the last reference to a
  // tensor besides that of its Python object.
  const Stack kept = stack;
  {
    const WithoutGil without_gil;
    op.handle.callBoxed(stack);
  }
  return results_of(std::move(stack));
}

}  // namespace syncfree::call
