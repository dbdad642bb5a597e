#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "runtime/own_call.h"
#include "runtime/region_objects.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

PyTypeObject* region_type = nullptr;

// The device and stream on which a region begins; false with Python's error set.
bool find_place(const TimerObject& owner, int& device, cuda::Stream& stream) {
  device = owner.device;
  if (device < 0 && (owner.device_function == nullptr || owner.device_function(&device) != 0)) {
    PyObject* index = PyObject_CallNoArgs(owner.current_device);
    if (index == nullptr) return false;
    device = static_cast<int>(PyLong_AsLong(index));
    Py_DECREF(index);
    if (device == -1 && PyErr_Occurred()) return false;
  }
  void* found = nullptr;
  if (owner.stream_function != nullptr && owner.stream_function(device, &found) == 0) {
    stream = static_cast<cuda::Stream>(found);
    return true;
  }
  PyObject* index = PyLong_FromLong(device);
  if (index == nullptr) return false;
  PyObject* handle = PyObject_CallOneArg(owner.current_stream, index);
  Py_DECREF(index);
  if (handle == nullptr) return false;
  stream = static_cast<cuda::Stream>(PyLong_AsVoidPtr(handle));
  Py_DECREF(handle);
  return stream != nullptr || !PyErr_Occurred();
}

// Returns false with Python's error set if the NVTX range of a region cannot be ended.
bool end_range(const TimerObject& owner) {
  if (owner.pop_range == nullptr) return true;
  PyObject* done = PyObject_CallNoArgs(owner.pop_range);
  Py_XDECREF(done);
  return done != nullptr;
}

PyObject* open_region(RegionObject& region, DeviceRegions* device, cuda::Stream stream,
                      bool& in_range) {
  TimerObject& owner = *region.owner;
  {
    const OwnCall own;
    region.slot = owner.timer->open(*region.history, device, stream, region.bytes);
  }
  if (owner.push_range != nullptr) {
    PyObject* done = PyObject_CallOneArg(owner.push_range, region.name);
    if (done == nullptr) return nullptr;
    Py_DECREF(done);
    in_range = true;
  }
  if (region.slot != nullptr) {
    const OwnCall own;
    if (region.slot->device == nullptr)
      owner.timer->record_start(*region.slot);
    else
      without_gil([&] { owner.timer->record_start(*region.slot); });
  }
  return Py_NewRef(reinterpret_cast<PyObject*>(&region));
}

PyObject* begin(RegionObject* self, PyObject*) {
  TimerObject& owner = *self->owner;
  if (self->is_open) {
    set_timer_error(
        ("region '" + self->history->name() +
         "' is open already: take another object of `timer.region` for one inside of it")
            .c_str());
    return nullptr;
  }
  const bool on_gpu = owner.has_gpu && !RegionTimer::in_forked_child();
  int device = -1;
  cuda::Stream stream = nullptr;
  if (on_gpu && !find_place(owner, device, stream)) return nullptr;
  // Before the GIL is released: another thread must find the region open.
  self->is_open = true;
  bool in_range = false;
  PyObject* begun = guarded([&]() -> PyObject* {
    if (!on_gpu) return open_region(*self, nullptr, stream, in_range);
    std::optional<OwnCall> own(std::in_place);
    DeviceRegions& regions = owner.timer->on(device);
    const cuda::InContext here(regions.device->driver(), regions.device->context());
    own.reset();  // the function that pushes a range is not ours
    return open_region(*self, &regions, stream, in_range);
  });
  if (begun == nullptr) {
    const py::error_scope kept;
    if (in_range && !end_range(owner)) PyErr_Clear();
    if (self->slot != nullptr) owner.timer->abandon(*self->slot);
    self->slot = nullptr;
    self->is_open = false;
  }
  return begun;
}

PyObject* region_stop(RegionObject* self, PyObject*) {
  if (!self->is_open) {
    set_timer_error(("region '" + self->history->name() + "' is not open").c_str());
    return nullptr;
  }
  RegionTimer& timer = *self->owner->timer;
  RegionSlot* slot = std::exchange(self->slot, nullptr);
  self->is_open = false;
  if (!end_range(*self->owner)) {
    if (slot != nullptr) timer.lose(*slot, "an NVTX range could not be ended");
    return nullptr;
  }
  if (slot == nullptr) return Py_NewRef(Py_None);
  // It began in the parent, whose driver this process must not call.
  if (slot->device != nullptr && RegionTimer::in_forked_child()) {
    timer.skip(*slot);
    return Py_NewRef(Py_None);
  }
  return guarded([&]() -> PyObject* {
    slot->sample.bytes = self->bytes;
    try {
      if (slot->device == nullptr)
        timer.record_end(*slot);
      else
        without_gil([&] { timer.record_end(*slot); });
    } catch (const cuda::Error& error) {
      timer.lose(*slot, error.what());
      throw;
    }
    timer.close(*slot);
    return Py_NewRef(Py_None);
  });
}

PyObject* region_exit(RegionObject* self, PyObject* const* arguments, Py_ssize_t count) {
  PyObject* done = region_stop(self, nullptr);
  const bool block_failed = count > 0 && arguments[0] != Py_None;
  // An error of ours must not hide the block's exception; an interrupt may.
  if (done != nullptr || !block_failed || !PyErr_ExceptionMatches(PyExc_Exception)) return done;
  PyErr_Clear();
  return Py_NewRef(Py_None);
}

PyObject* region_cancel(RegionObject* self, PyObject*) {
  if (self->is_open) {
    if (self->slot != nullptr) self->owner->timer->abandon(*self->slot);
    self->slot = nullptr;
    self->is_open = false;
    if (!end_range(*self->owner)) return nullptr;
  }
  Py_RETURN_NONE;
}

void region_free(RegionObject* self) {
  if (self->is_open) {
    const py::error_scope kept;  // an exception may be on its way
    if (!end_range(*self->owner)) PyErr_WriteUnraisable(self->owner->pop_range);
  }
  if (self->slot != nullptr)
    self->owner->timer->lose(*self->slot, "region '" + self->history->name() + "' was never ended");
  Py_XDECREF(self->name);
  Py_XDECREF(reinterpret_cast<PyObject*>(self->owner));
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* region_name(RegionObject* self, void*) {
  return Py_NewRef(self->name);
}

PyObject* region_kind(RegionObject* self, void*) {
  return Py_NewRef(kind_names[static_cast<int>(self->history->kind())]);
}

PyObject* region_bytes(RegionObject* self, void*) {
  if (self->bytes < 0) Py_RETURN_NONE;
  return PyLong_FromLongLong(self->bytes);
}

int set_region_bytes(RegionObject* self, PyObject* value, void*) {
  return read_bytes(value, self->bytes) ? 0 : -1;
}

PyMethodDef region_methods[] = {
    {"__enter__", method(begin), METH_NOARGS, nullptr},
    {"__exit__", method(region_exit), METH_FASTCALL, nullptr},
    {"start", method(begin), METH_NOARGS,
     "Begins the region on the current stream; returns itself. The same as entering it."},
    {"stop", method(region_stop), METH_NOARGS,
     "Ends the region, on the stream on which it began and from any thread."},
    {"cancel", method(region_cancel), METH_NOARGS,
     "Ends the region, if it is open, without a sample."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef region_attributes[] = {
    {"name", reinterpret_cast<getter>(region_name), nullptr, "As given to `timer.region`.",
     nullptr},
    {"kind", reinterpret_cast<getter>(region_kind), nullptr, "'compute', 'h2d' or 'd2h'.", nullptr},
    {"bytes", reinterpret_cast<getter>(region_bytes), reinterpret_cast<setter>(set_region_bytes),
     "How much is moved, or None; may be set until the end.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot region_slots[] = {
    {Py_tp_doc, const_cast<char*>("A stretch of a program that a timer times; made by "
                                  "`timer.region`, open once at a time.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(region_free)},
    {Py_tp_methods, region_methods},
    {Py_tp_getset, region_attributes},
    {0, nullptr}};

PyType_Spec region_spec = {"syncfree._runtime.Region", sizeof(RegionObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, region_slots};

}  // namespace

bool read_bytes(PyObject* value, std::int64_t& bytes) {
  if (value == nullptr || value == Py_None) {
    bytes = -1;
    return true;
  }
  const long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "bytes must be an int or None, but got %.200s",
                   Py_TYPE(value)->tp_name);
    return false;
  }
  if (number < 0) {
    PyErr_Format(PyExc_ValueError, "bytes must not be negative, but got %lld", number);
    return false;
  }
  bytes = number;
  return true;
}

PyObject* new_region(TimerObject* owner, PyObject* name, RegionHistory* history,
                     std::int64_t bytes) {
  auto* region = PyObject_New(RegionObject, region_type);
  if (region == nullptr) return nullptr;
  region->owner = owner;
  region->name = name;
  Py_INCREF(owner);
  Py_INCREF(name);
  region->history = history;
  region->slot = nullptr;
  region->bytes = bytes;
  region->is_open = false;
  return reinterpret_cast<PyObject*>(region);
}

py::object make_region_type() {
  PyObject* type = PyType_FromSpec(&region_spec);
  if (type == nullptr) throw py::error_already_set();
  region_type = reinterpret_cast<PyTypeObject*>(type);
  return py::reinterpret_borrow<py::object>(type);  // one reference stays with us
}

}  // namespace syncfree::runtime
