// The type's call by vectorcall, and a method that takes its arguments in groups.
#include "callable.h"

#include <structmember.h>  // needed before CPython 3.12

#include <c10/util/SmallVector.h>

#include <cstddef>

#include "operator.h"

namespace syncfree::call {
namespace {

// Unpacks tuples like `call(*a, *b, c)`, for which Python would make a list and another tuple.
PyObject* call_with_groups(PyObject* self, PyObject* const* groups, Py_ssize_t count) {
  return with_errors([&]() -> PyObject* {
    c10::SmallVector<PyObject*, 16> arguments;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!PyTuple_CheckExact(groups[i])) {
        arguments.push_back(groups[i]);
        continue;
      }
      PyObject** const items = PySequence_Fast_ITEMS(groups[i]);
      arguments.append(items, items + PyTuple_GET_SIZE(groups[i]));
    }
    const auto call = reinterpret_cast<Callable*>(self)->vectorcall;
    return call(self, arguments.data(), arguments.size(), nullptr);
  });
}

void free_callable(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Callable*>(self)->usual);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"usual", T_OBJECT, offsetof(Callable, usual), READONLY, "torch's own way"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyMethodDef methods[] = {
    {"with_groups", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_with_groups)),
     METH_FASTCALL, "The call with arguments of which some stand together in tuples."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_callable)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec spec = {
    "syncfree._call.Callable", sizeof(Callable), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type = nullptr;

}  // namespace

bool add_callable_type() {
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr;
}

PyObject* make_callable(vectorcallfunc vectorcall, PyObject* usual, const void* what) {
  auto* object = PyObject_New(Callable, type);
  if (object == nullptr) return nullptr;
  object->vectorcall = vectorcall;
  object->usual = Py_NewRef(usual);
  object->what = what;
  return reinterpret_cast<PyObject*>(object);
}

}  // namespace syncfree::call
