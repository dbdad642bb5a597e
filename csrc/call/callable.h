// The Python type of all callables here.
#pragma once

#include <Python.h>

namespace syncfree::call {

struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* usual;   // what does the same for all arguments there can be
  const void* what;  // it calls; kept for ever, since a graph may outlive the callable
};

bool add_callable_type();

// A new reference; null with an error set.
PyObject* make_callable(vectorcallfunc vectorcall, PyObject* usual, const void* what);

template <class T>
const T& what_calls(PyObject* self) {
  return *static_cast<const T*>(reinterpret_cast<Callable*>(self)->what);
}

inline PyObject* call_usual(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                            PyObject* names) {
  return PyObject_Vectorcall(reinterpret_cast<Callable*>(self)->usual, arguments, flagged, names);
}

}  // namespace syncfree::call
