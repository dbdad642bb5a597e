#include "runtime/metric_checks.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

bool is_unset(PyObject* entry) {
  return entry == Py_None || entry == Py_False || (PyDict_Check(entry) && PyDict_Size(entry) == 0);
}

PyObject* all_unset(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count % 2 != 0) {
    PyErr_SetString(PyExc_TypeError, "expected names behind each dict");
    return nullptr;
  }
  for (; count > 0; arguments += 2, count -= 2) {
    PyObject *const holder = arguments[0], *const names = arguments[1];
    if (!is_type(holder, &PyDict_Type) || !is_type(names, &PyTuple_Type)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* entry = PyDict_GetItemWithError(holder, PyTuple_GET_ITEM(names, i));
      if (entry == nullptr && PyErr_Occurred()) return nullptr;
      if (entry != nullptr && !is_unset(entry)) Py_RETURN_FALSE;
    }
  }
  Py_RETURN_TRUE;
}

// A detached state shares the storage but not the Python object, so the storage's reference count
// has to be read. torch does not promise where that is: in 2.11 to 2.13 a tensor's Python object
// points to the TensorImpl, and that to the StorageImpl, which holds the count. Nothing is read
// before `look_into_storages` has found a tensor with this layout.
constexpr std::size_t kImplInObject = sizeof(PyObject), kStorageInImpl = 16, kUsersInStorage = 8;
PyTypeObject* tensor_type = nullptr;

template <class T>
T read(const void* base, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

bool is_storage_shared(PyObject* state) {
  if (Py_TYPE(state) != tensor_type) return false;
  const auto* impl = read<const void*>(state, kImplInObject);
  const auto* storage = impl == nullptr ? nullptr : read<const void*>(impl, kStorageInImpl);
  if (storage == nullptr) return false;
  const auto word = read<std::uint64_t>(storage, kUsersInStorage);
  // The tensor itself is one user. If the top bit is set, the storage's Python object is another:
  // it stays once somebody has asked for it, and does not mean that anyone holds the storage.
  const std::uint64_t users = word & 0xffffffff, own = 1 + (word >> 63);
  return users > own;
}

PyObject* look_into_storages(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 3)) return nullptr;
  PyObject* const tensor = arguments[0];
  const void* const impl = PyLong_AsVoidPtr(arguments[1]);
  const void* const storage = PyLong_AsVoidPtr(arguments[2]);
  if (PyErr_Occurred()) return nullptr;
  const bool is_known = Py_TYPE(tensor)->tp_basicsize >= Py_ssize_t{kImplInObject + sizeof impl} &&
                        read<const void*>(tensor, kImplInObject) == impl &&
                        read<const void*>(impl, kStorageInImpl) == storage;
  if (!is_known) Py_RETURN_FALSE;
  Py_INCREF(Py_TYPE(tensor));
  Py_XDECREF(tensor_type);
  tensor_type = Py_TYPE(tensor);
  Py_RETURN_TRUE;
}

PyObject* has_more_holders(PyObject* holder, PyObject* named, Py_ssize_t most) {
  if (!is_type(holder, &PyDict_Type) || !is_type(named, &PyDict_Type)) return nullptr;
  Py_ssize_t place = 0;
  for (PyObject* name = nullptr; PyDict_Next(named, &place, &name, nullptr);) {
    PyObject* entry = PyDict_GetItemWithError(holder, name);
    if (entry == nullptr && PyErr_Occurred()) return nullptr;
    if (entry == nullptr) continue;
    if (Py_REFCNT(entry) > most || is_storage_shared(entry)) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

PyObject* is_held_by_more(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 3)) return nullptr;
  const Py_ssize_t most = PyLong_AsSsize_t(arguments[2]);
  if (most == -1 && PyErr_Occurred()) return nullptr;
  return has_more_holders(arguments[0], arguments[1], most);
}

PyObject* are_shared(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!has_count(count, 1) || !is_type(arguments[0], &PyDict_Type)) return nullptr;
  static PyObject *const defaults = PyUnicode_InternFromString("_defaults"),
                         *const followers = PyUnicode_InternFromString("_followers");
  PyObject* const named = PyDict_GetItemWithError(arguments[0], defaults);
  if (named == nullptr && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, defaults);
  if (named == nullptr) return nullptr;
  PyObject* const others = PyDict_GetItemWithError(arguments[0], followers);
  const Py_ssize_t most = 1 + (others == nullptr ? 0 : PyLong_AsSsize_t(others));
  if (PyErr_Occurred()) return nullptr;
  return has_more_holders(arguments[0], named, most);
}

// CUDA must not be used in the forked child of a process that did.
std::atomic<bool> has_asked{false}, is_forked_child{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(
      once, [] { pthread_atfork(nullptr, nullptr, [] { is_forked_child = has_asked.load(); }); });
}

// Asks about the current stream of the current device. False if the driver has no answer: for the
// legacy stream while another one is captured.
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
    {"all_unset", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(all_unset)), METH_FASTCALL,
     "Whether each entry of a dict with one of the names that follow it is missing, None, False or "
     "an empty dict."},
    {"are_shared", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(are_shared)),
     METH_FASTCALL,
     "is_held_by_more for the states of a metric with these attributes, which the object itself "
     "holds and its followers."},
    {"is_held_by_more", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(is_held_by_more)),
     METH_FASTCALL,
     "Whether an entry with a name of the second dict has more references than that, or is a "
     "tensor whose storage has another user."},
    {"look_into_storages",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(look_into_storages)), METH_FASTCALL,
     "Lets is_held_by_more look into storages, if that of this tensor is found at the addresses of "
     "its parts. Returns whether it is."},
    {"is_stream_capturing",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(is_stream_capturing)), METH_FASTCALL,
     "Whether a CUDA graph of the current stream is being captured, by addresses of C functions."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_metric_checks(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
}

}  // namespace syncfree::runtime
