// The Python type of all callables here.
//
// Each one is a fast path for the calls that it can handle itself, and passes all others on to its
// usual callable, which accepts any arguments.
#pragma once

#include <Python.h>

namespace syncfree::call {

struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* usual;   // does the same for any arguments
  const void* what;  // is called; never freed, since an autograd graph may outlive the callable
};

bool add_callable_type();

// Returns a new reference, or null with an error set.
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
