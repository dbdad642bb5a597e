#include "runtime/metric_checks.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "runtime/cuda_driver.h"
#include "runtime/region_objects.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

using CaptureStatus = cuda::Result (*)(cuda::Stream stream, int* status);

bool has_count(Py_ssize_t count, Py_ssize_t expected) {
  if (count == expected) return true;
  PyErr_Format(PyExc_TypeError, "expected %zd arguments, but got %zd", expected, count);
  return false;
}

bool is_type(PyObject* object, PyTypeObject* type) {
  if (PyObject_TypeCheck(object, type)) return true;
  PyErr_Format(PyExc_TypeError, "expected %s, but got %s", type->tp_name, Py_TYPE(object)->tp_name);
  return false;
}

PyObject* all_empty(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 2)) return nullptr;
  PyObject *const holder = arguments[0], *const names = arguments[1];
  if (!is_type(holder, &PyDict_Type) || !is_type(names, &PyTuple_Type)) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* entry = PyDict_GetItemWithError(holder, PyTuple_GET_ITEM(names, i));
    if (entry == nullptr) {
      if (PyErr_Occurred()) return nullptr;
      continue;
    }
    const bool is_empty = entry == Py_None || (PyDict_Check(entry) && PyDict_Size(entry) == 0);
    if (!is_empty) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

PyObject* is_held_by_more(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 3)) return nullptr;
  PyObject *const holder = arguments[0], *const named = arguments[1];
  if (!is_type(holder, &PyDict_Type) || !is_type(named, &PyDict_Type)) return nullptr;
  const Py_ssize_t most = PyLong_AsSsize_t(arguments[2]);
  if (most == -1 && PyErr_Occurred()) return nullptr;
  Py_ssize_t place = 0;
  for (PyObject* name = nullptr; PyDict_Next(named, &place, &name, nullptr);) {
    PyObject* entry = PyDict_GetItemWithError(holder, name);
    if (entry == nullptr && PyErr_Occurred()) return nullptr;
    if (entry != nullptr && Py_REFCNT(entry) > most) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

// CUDA must not be used in the forked child of a process that did.
std::atomic<bool> has_asked{false}, is_forked_child{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(
      once, [] { pthread_atfork(nullptr, nullptr, [] { is_forked_child = has_asked.load(); }); });
}

// Of the current device and stream. False where the driver has no answer: for the legacy stream
// while another one is captured.
PyObject* is_stream_capturing(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 3)) return nullptr;
  const auto device_function = reinterpret_cast<CurrentDevice>(PyLong_AsVoidPtr(arguments[0]));
  const auto stream_function = reinterpret_cast<CurrentStream>(PyLong_AsVoidPtr(arguments[1]));
  const auto status_function = reinterpret_cast<CaptureStatus>(PyLong_AsVoidPtr(arguments[2]));
  if (PyErr_Occurred()) return nullptr;
  if (is_forked_child) Py_RETURN_FALSE;
  if (!has_asked.load(std::memory_order_relaxed)) {
    watch_forks();
    has_asked = true;
  }
  std::int32_t device = 0;
  void* stream = nullptr;
  if (device_function(&device) != 0 || stream_function(device, &stream) != 0) {
    PyErr_SetString(PyExc_RuntimeError, "torch does not tell the current CUDA device and stream");
    return nullptr;
  }
  int status = cuda::kCaptureNone;
  const cuda::Result result = status_function(static_cast<cuda::Stream>(stream), &status);
  return PyBool_FromLong(result == cuda::kSuccess && status != cuda::kCaptureNone);
}

// The casts by way of void* are CPython's own for METH_FASTCALL.
PyMethodDef functions[] = {
    {"all_empty", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(all_empty)), METH_FASTCALL,
     "Whether each of the entries with these names is missing, None or an empty dict."},
    {"is_held_by_more", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(is_held_by_more)),
     METH_FASTCALL,
     "Whether an entry with a name of the second dict has more references than that."},
    {"is_stream_capturing",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(is_stream_capturing)), METH_FASTCALL,
     "Whether a CUDA graph of the current stream is being captured, by addresses of C functions."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_metric_checks(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
}

}  // namespace syncfree::runtime
