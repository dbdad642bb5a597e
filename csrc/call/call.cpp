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
#include <Python.h>
#include <structmember.h>  // of CPython below 3.12

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

enum class Kind { kTensor, kInt, kFloat, kBool, kInts, kFloats };

struct Parameter {
  Kind kind;
  bool optional = false;
};

struct Operator {
  c10::OperatorHandle handle;
  std::vector<Parameter> parameters;
};

struct CallObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* usual;  // torch's own callable
  Operator* op;
};

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

// False for what is not plainly of the type, which torch may know to convert or to refuse.
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
bool push_list(PyObject* object, bool (*push)(PyObject*, std::vector<T>&),
               std::vector<c10::IValue>& stack) {
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return false;
  std::vector<T> values;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  values.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!push(PySequence_Fast_GET_ITEM(object, i), values)) return false;
  stack.emplace_back(std::move(values));
  return true;
}

bool push(const Parameter& parameter, PyObject* object, std::vector<c10::IValue>& stack) {
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

bool push_all(const Operator& op, PyObject* const* arguments, std::size_t count,
              std::vector<c10::IValue>& stack) {
  if (count != op.parameters.size() || at::impl::torch_function_mode_enabled()) return false;
  stack.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    if (!push(op.parameters[i], arguments[i], stack)) return false;
  return true;
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

PyObject* results_of(std::vector<c10::IValue>&& stack) {
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

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t flagged, PyObject* names) {
  auto* object = reinterpret_cast<CallObject*>(self);
  HANDLE_TH_ERRORS
  try {
    std::vector<c10::IValue> stack;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    if (names != nullptr || !push_all(*object->op, arguments, count, stack))
      return PyObject_Vectorcall(object->usual, arguments, flagged, names);
    // torch takes the GIL to let go of a tensor's last reference beside that of its Python object.
    const std::vector<c10::IValue> kept = stack;
    {
      const WithoutGil without_gil;
      object->op->handle.callBoxed(stack);
    }
    return results_of(std::move(stack));
    // As pybind11 does, which torch's own way goes through.
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

// Unpacks tuples as `call(*a, *b, c)` does, for which Python makes a list and another tuple.
PyObject* call_with_groups(PyObject* self, PyObject* const* groups, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  c10::SmallVector<PyObject*, 16> arguments;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!PyTuple_CheckExact(groups[i])) {
      arguments.push_back(groups[i]);
      continue;
    }
    PyObject** const items = PySequence_Fast_ITEMS(groups[i]);
    arguments.append(items, items + PyTuple_GET_SIZE(groups[i]));
  }
  return call(self, arguments.data(), arguments.size(), nullptr);
  END_HANDLE_TH_ERRORS
}

void free_call(PyObject* self) {
  auto* object = reinterpret_cast<CallObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(object->usual);
  delete object->op;
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"usual", T_OBJECT, offsetof(CallObject, usual), READONLY, "torch's own callable"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CallObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyMethodDef methods[] = {
    {"with_groups", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_with_groups)),
     METH_FASTCALL, "The call with arguments of which some stand together in tuples."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec spec = {"syncfree._call.Call", sizeof(CallObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};

PyTypeObject* call_type = nullptr;

PyObject* quick(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *overload = nullptr;
  PyObject* usual = nullptr;
  if (!PyArg_ParseTuple(arguments, "ssO", &name, &overload, &usual)) return nullptr;
  HANDLE_TH_ERRORS
  auto op = operator_of(name, overload);
  if (!op) return Py_NewRef(usual);
  auto* object = PyObject_New(CallObject, call_type);
  if (object == nullptr) return nullptr;
  object->vectorcall = call;
  object->usual = Py_NewRef(usual);
  object->op = new Operator(std::move(*op));
  return reinterpret_cast<PyObject*>(object);
  END_HANDLE_TH_ERRORS
}

PyMethodDef functions[] = {
    {"quick", quick, METH_VARARGS,
     "A quicker callable for an operator, by name, overload and torch's own callable; that one "
     "where the operator takes or returns what is not known here."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_call", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__call() {
  call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return call_type == nullptr ? nullptr : PyModule_Create(&definition);
}
