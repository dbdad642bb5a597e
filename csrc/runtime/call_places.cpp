#include "runtime/call_places.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "runtime/python_stack.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

constexpr std::int64_t kKept = 4096;  // calls, a power of two
constexpr std::size_t kMostFrames = 512;
constexpr std::size_t kCodesAtHand = 64;  // a power of two

struct Place {
  std::int64_t number = 0;
  PyCodeObject* code = nullptr;  // owned
  int instruction = 0;
};

// A cache of code objects of the packages, by address: looking here needs no hash of a file's name.
// Entries are never evicted, since dropping a reference may run Python code.
using CodesAtHand = std::array<PyCodeObject*, kCodesAtHand>;

PyCodeObject*& place_of(CodesAtHand& codes, const PyCodeObject* code) {
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  return codes[(address >> 6 ^ address >> 12) % kCodesAtHand];
}

struct PlacesObject {
  PyObject ob_base;
  PyObject* is_inside;  // dict: file name -> bool
  PyObject* judge;      // (file name) -> bool, for names that the dict lacks
  long number_shift;
  std::int64_t count;
  std::vector<Place> kept;
  CodesAtHand inside;
};

// A walk up the frames, which finds the first one outside of the packages, or else the outermost.
struct Search {
  PyObject* is_inside;
  CodesAtHand* known_inside;
  PyCodeObject* code = nullptr;
  int instruction = 0;
  PyObject* unknown = nullptr;  // a file name that `is_inside` lacks; it ended the walk
};

bool visit(void* context, const PythonFrame& frame) {
  auto& search = *static_cast<Search*>(context);
  auto* code = static_cast<PyCodeObject*>(const_cast<void*>(frame.code));
  search.code = code;
  search.instruction = frame.instruction();
  PyCodeObject*& known = place_of(*search.known_inside, code);
  if (known == code) return true;
  PyObject* inside = PyDict_GetItemWithError(search.is_inside, code->co_filename);
  if (inside == nullptr) search.unknown = code->co_filename;
  if (inside == Py_True && known == nullptr)
    known = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(code)));
  return inside == Py_True;
}

// Returns false with Python's error set.
bool find_outside(const PlacesObject& self, Search& search) {
  while (true) {
    search.unknown = nullptr;
    walk_python_stack(visit, &search, kMostFrames);
    if (search.unknown == nullptr) return true;
    if (PyErr_Occurred()) return false;
    PyObject* const file = Py_NewRef(search.unknown);
    PyObject* const judged = PyObject_CallOneArg(self.judge, file);
    const int inside = judged == nullptr ? -1 : PyObject_IsTrue(judged);
    const bool entered =
        inside >= 0 && PyDict_SetItem(self.is_inside, file, inside ? Py_True : Py_False) == 0;
    Py_XDECREF(judged);
    Py_DECREF(file);
    if (!entered) return false;
  }
}

PyObject* note(PlacesObject* self, PyObject* bits) {
  const long long options = PyLong_AsLongLong(bits);
  if (options == -1 && PyErr_Occurred()) return nullptr;
  Search search{self->is_inside, &self->inside};
  if (!find_outside(*self, search)) return nullptr;
  const std::int64_t number = ++self->count;
  Place& place = self->kept[static_cast<std::size_t>(number & (kKept - 1))];
  place.number = number;
  place.instruction = search.instruction;
  PyCodeObject* const before = place.code;
  place.code = search.code;
  Py_XINCREF(place.code);
  Py_XDECREF(before);  // last, since it may run Python code
  return PyLong_FromLongLong(options | number << self->number_shift);
}

PyObject* find(PlacesObject* self, PyObject* wanted) {
  const long long number = PyLong_AsLongLong(wanted);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  const Place& place = self->kept[static_cast<std::size_t>(number & (kKept - 1))];
  if (number <= 0 || place.number != number || place.code == nullptr) Py_RETURN_NONE;
  return Py_BuildValue("(Oi)", place.code, place.instruction);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *is_inside = nullptr, *judge = nullptr;
  int number_shift = 0;
  if (!PyArg_ParseTuple(arguments, "O!Oi", &PyDict_Type, &is_inside, &judge, &number_shift))
    return nullptr;
  auto* self = reinterpret_cast<PlacesObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->is_inside = Py_NewRef(is_inside);
  self->judge = Py_NewRef(judge);
  self->number_shift = number_shift;
  self->count = 0;
  new (&self->kept) std::vector<Place>(kKept);
  new (&self->inside) CodesAtHand{};
  return reinterpret_cast<PyObject*>(self);
}

void free_places(PlacesObject* self) {
  for (const Place& place : self->kept) Py_XDECREF(place.code);
  for (PyCodeObject* code : self->inside) Py_XDECREF(code);
  self->kept.~vector();
  Py_XDECREF(self->is_inside);
  Py_XDECREF(self->judge);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <auto kFunction>
PyObject* method(PyObject* self, PyObject* argument) {
  return kFunction(reinterpret_cast<PlacesObject*>(self), argument);
}

PyMethodDef methods[] = {
    {"note", method<note>, METH_O,
     "`bits` with a number for this call, whose line outside of the packages is remembered."},
    {"find", method<find>, METH_O,
     "The code and instruction of a call by its number; None once others have taken its room."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("Where the last calls came from, by number.")},
                       {Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(free_places)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec spec = {"syncfree._runtime.CallPlaces", sizeof(PlacesObject), 0, Py_TPFLAGS_DEFAULT,
                    slots};

}  // namespace

void add_call_places_type(py::module_& module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.attr("CallPlaces") = py::reinterpret_steal<py::object>(type);
}

}  // namespace syncfree::runtime
