#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/region_objects.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

bool read_kind(PyObject* value, int& kind) {
  for (kind = 0; kind < kKinds; ++kind)
    if (value == kind_names[kind]) return true;
  if (PyUnicode_Check(value)) {
    for (kind = 0; kind < kKinds; ++kind)
      if (PyUnicode_CompareWithASCIIString(value, kKindNames[kind]) == 0) return true;
  }
  PyErr_Format(PyExc_ValueError, "kind must be 'compute', 'h2d' or 'd2h', but got %R", value);
  return false;
}

RegionHistory* find_history(TimerObject& self, PyObject* name, int kind) {
  PyObject* known = PyDict_GetItemWithError(self.names[kind], name);
  if (known != nullptr) return static_cast<RegionHistory*>(PyLong_AsVoidPtr(known));
  if (PyErr_Occurred()) return nullptr;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (text == nullptr) return nullptr;
  RegionHistory& history = self.timer->name(std::string(text, static_cast<std::size_t>(size)),
                                            static_cast<RegionKind>(kind));
  PyObject* address = PyLong_FromVoidPtr(&history);
  const bool kept = address != nullptr && PyDict_SetItem(self.names[kind], name, address) == 0;
  Py_XDECREF(address);
  return kept ? &history : nullptr;
}

RegionHistory* history_of(TimerObject& self, PyObject* name, int kind) {
  if (!PyUnicode_CheckExact(name)) return find_history(self, name, kind);
  // Strings lie 48, 64 or more bytes apart.
  const auto address = reinterpret_cast<std::uintptr_t>(name);
  NameAtHand& place =
      self.at_hand[kind][(address >> 4 ^ address >> 7 ^ address >> 10) % kNamesAtHand];
  if (place.name == name) [[likely]]
    return place.history;
  RegionHistory* history = find_history(self, name, kind);
  if (history == nullptr) return nullptr;
  place.history = history;
  Py_XSETREF(place.name, Py_NewRef(name));  // referenced, so that no other object gets its address
  return history;
}

PyObject* timer_region(TimerObject* self, PyObject* const* arguments, Py_ssize_t count,
                       PyObject* keywords) {
  PyObject *name = count > 0 ? arguments[0] : nullptr,
           *kind_value = count > 1 ? arguments[1] : nullptr;
  PyObject* bytes_value = nullptr;
  if (count > 2) {
    PyErr_Format(PyExc_TypeError, "region takes a name and a kind, but got %zd arguments", count);
    return nullptr;
  }
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* key = PyTuple_GET_ITEM(keywords, i);
    PyObject*& place = PyUnicode_CompareWithASCIIString(key, "kind") == 0    ? kind_value
                       : PyUnicode_CompareWithASCIIString(key, "bytes") == 0 ? bytes_value
                                                                             : name;
    if ((&place == &name && PyUnicode_CompareWithASCIIString(key, "name") != 0) ||
        place != nullptr) {
      PyErr_Format(PyExc_TypeError, "region takes name, kind and bytes, each once, but got %R",
                   key);
      return nullptr;
    }
    place = arguments[count + i];
  }
  if (name == nullptr || !PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "the name of a region must be a str, but got %.200s",
                 name == nullptr ? "nothing" : Py_TYPE(name)->tp_name);
    return nullptr;
  }
  int kind = 0;
  std::int64_t bytes = -1;
  if ((kind_value != nullptr && !read_kind(kind_value, kind)) || !read_bytes(bytes_value, bytes))
    return nullptr;
  return guarded([&]() -> PyObject* {
    RegionHistory* history = history_of(*self, name, kind);
    if (history == nullptr) return nullptr;
    return new_region(self, name, history, bytes);
  });
}

PyObject* timer_prepare(TimerObject* self, PyObject* device) {
  const long index = PyLong_AsLong(device);
  if (index == -1 && PyErr_Occurred()) return nullptr;
  return guarded([&] {
    self->timer->prepare(static_cast<int>(index));
    return Py_NewRef(Py_None);
  });
}

PyObject* timer_poll(TimerObject* self, PyObject*) {
  return guarded([&] { return PyLong_FromSize_t(self->timer->poll()); });
}

PyObject* timer_wait(TimerObject* self, PyObject*) {
  if (RegionTimer::in_forked_child()) return PyLong_FromLong(0);  // what is pending is the parent's
  return guarded([&] {
    const std::vector<RegionEnd> ends = self->timer->last_ends();
    without_gil([&] { self->timer->wait(ends); });
    return PyLong_FromSize_t(self->timer->poll());
  });
}

PyObject* timer_clear(TimerObject* self, PyObject*) {
  return guarded([&] {
    self->timer->poll();
    self->timer->clear();
    return Py_NewRef(Py_None);
  });
}

py::object known(double value) {
  return std::isnan(value) ? py::object(py::none()) : py::object(py::float_(value));
}

py::tuple as_tuple(const RegionSample& sample) {
  return py::make_tuple(
      sample.sequence, sample.parent, sample.thread, sample.stream, sample.device, sample.depth,
      sample.bytes < 0 ? py::object(py::none()) : py::object(py::int_(sample.bytes)), sample.flags,
      known(sample.host_start), known(sample.host_enqueue), known(sample.host_gap),
      known(sample.gpu_start), known(sample.gpu), known(sample.gpu_gap), known(sample.mhz));
}

PyObject* timer_histories(TimerObject* self, PyObject*) {
  return guarded([&] {
    py::list histories;
    for (const RegionHistory& history : self->timer->histories()) {
      py::list samples;
      for (const RegionSample& sample : history.kept()) samples.append(as_tuple(sample));
      histories.append(py::make_tuple(history.name(), kKindNames[static_cast<int>(history.kind())],
                                      history.count(), history.total(), history.least(), samples));
    }
    return histories.release().ptr();
  });
}

PyObject* timer_counts(TimerObject* self, PyObject*) {
  return guarded([&] {
    py::dict counts;
    counts["pending"] = self->timer->pending();
    counts["dropped"] = self->timer->dropped();
    counts["skipped"] = self->timer->skipped();
    counts["lost"] = self->timer->lost();
    counts["problem"] = self->timer->problem();
    return counts.release().ptr();
  });
}

PyObject* timer_brackets(TimerObject* self, PyObject*) {
  return guarded([&] {
    py::dict brackets;
    for (const auto& [device, microseconds] : self->timer->brackets())
      brackets[py::int_(device)] = known(microseconds);
    return brackets.release().ptr();
  });
}

void keep(PyObject*& place, PyObject* value) {
  place = value == Py_None ? nullptr : Py_NewRef(value);
}

PyObject* timer_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"current_device",  "current_stream", "capacity",  "history",
                                "stamp_every",     "push_range",     "pop_range", "device_function",
                                "stream_function", nullptr};
  PyObject *current_device = Py_None, *current_stream = Py_None;
  PyObject *push_range = Py_None, *pop_range = Py_None;
  Py_ssize_t capacity = 2048, history = 1024, stamp_every = 64;
  Py_ssize_t device_function = 0, stream_function = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO$nnnOOnn:RegionTimer",
                                   const_cast<char**>(names), &current_device, &current_stream,
                                   &capacity, &history, &stamp_every, &push_range, &pop_range,
                                   &device_function, &stream_function))
    return nullptr;
  if (capacity < 1 || history < 1 || stamp_every < 0) {
    PyErr_Format(PyExc_ValueError,
                 "capacity and history must be at least 1 and stamp_every at least 0, but got %zd, "
                 "%zd and %zd",
                 capacity, history, stamp_every);
    return nullptr;
  }
  if ((current_device == Py_None) != (current_stream == Py_None) ||
      (push_range == Py_None) != (pop_range == Py_None)) {
    PyErr_SetString(PyExc_TypeError,
                    "current_device and current_stream go together, and push_range and pop_range");
    return nullptr;
  }
  int device = -1;
  if (PyLong_Check(current_device)) {
    const long index = PyLong_AsLong(current_device);
    if (index < 0 || index > std::numeric_limits<int>::max()) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "there is no device %ld", index);
      return nullptr;
    }
    device = static_cast<int>(index);
  }
  auto* self = reinterpret_cast<TimerObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->has_gpu = current_device != Py_None;
  self->device = device;
  self->device_function = reinterpret_cast<CurrentDevice>(device_function);
  self->stream_function = reinterpret_cast<CurrentStream>(stream_function);
  keep(self->current_device, device < 0 ? current_device : Py_None);
  keep(self->current_stream, current_stream);
  keep(self->push_range, push_range);
  keep(self->pop_range, pop_range);
  for (PyObject*& each : self->names) each = PyDict_New();
  PyObject* made = guarded([&] {
    self->timer =
        new RegionTimer({static_cast<std::size_t>(capacity), static_cast<std::size_t>(history),
                         static_cast<std::uint64_t>(stamp_every), self->has_gpu});
    return reinterpret_cast<PyObject*>(self);
  });
  if (made == nullptr) Py_DECREF(self);
  return made;
}

void timer_free(TimerObject* self) {
  delete self->timer;
  for (PyObject* each : {self->current_device, self->current_stream, self->push_range,
                         self->pop_range, self->names[0], self->names[1], self->names[2]})
    Py_XDECREF(each);
  for (auto& of_kind : self->at_hand)
    for (NameAtHand& place : of_kind) Py_XDECREF(place.name);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef timer_methods[] = {
    {"region", method(timer_region), METH_FASTCALL | METH_KEYWORDS,
     "region(name, kind='compute', *, bytes=None)\n--\n\n"
     "A stretch of the program to time, for `with` or for `start` and `stop`.\n\n"
     "Args:\n"
     "    name: What it is; its samples are gathered under this name and kind.\n"
     "    kind: ``'compute'``, ``'h2d'`` (host to device) or ``'d2h'``.\n"
     "    bytes: How much is moved, for a rate; may be set on the region until its end.\n\n"
     "Raises:\n"
     "    ValueError: No such kind, or negative bytes.\n"
     "    TimerError: There are too many names."},
    {"prepare", method(timer_prepare), METH_O,
     "Makes events and kernels of a device now instead of at its first region."},
    {"poll", method(timer_poll), METH_NOARGS,
     "Turns what the GPU has finished into samples and returns how many. Never waits."},
    {"wait", method(timer_wait), METH_NOARGS,
     "Waits for the GPU until all regions that have ended are samples; the one call that does."},
    {"clear", method(timer_clear), METH_NOARGS,
     "Forgets all samples and counts; regions that are open or pending will not count either."},
    {"histories", method(timer_histories), METH_NOARGS, nullptr},
    {"counts", method(timer_counts), METH_NOARGS, nullptr},
    {"brackets", method(timer_brackets), METH_NOARGS,
     "Microseconds that two events take by themselves, by device; None if it cannot be measured."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot timer_slots[] = {
    {Py_tp_doc, const_cast<char*>("Times regions with pooled events; see syncfree.EventTimer.")},
    {Py_tp_new, reinterpret_cast<void*>(timer_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(timer_free)},
    {Py_tp_methods, timer_methods},
    {0, nullptr}};

PyType_Spec timer_spec = {"syncfree._runtime.RegionTimer", sizeof(TimerObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, timer_slots};

}  // namespace

py::object make_timer_type() {
  PyObject* type = PyType_FromSpec(&timer_spec);
  if (type == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(type);
}

void add_region_types(py::module_& module) {
  for (int kind = 0; kind < kKinds; ++kind) {
    kind_names[kind] = PyUnicode_InternFromString(kKindNames[kind]);
    if (kind_names[kind] == nullptr) throw py::error_already_set();
  }
  module.attr("Region") = make_region_type();
  module.attr("RegionTimer") = make_timer_type();
}

}  // namespace syncfree::runtime
