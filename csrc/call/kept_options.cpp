// Options that are compared with those of earlier calls instead of being checked again.
#include "kept_options.h"

#include <algorithm>
#include <utility>

namespace syncfree::call {
namespace {

bool is_constant(PyObject* object) {
  if (PyTuple_CheckExact(object)) {
    PyObject** const items = PySequence_Fast_ITEMS(object);
    return std::all_of(items, items + PyTuple_GET_SIZE(object), is_constant);
  }
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
}

bool is_same(PyObject* one, PyObject* constant);

bool are_same(PyObject* const* items, std::size_t count, PyObject* constants) {
  PyObject** const others = PySequence_Fast_ITEMS(constants);
  return std::equal(items, items + count, others, others + PyTuple_GET_SIZE(constants), is_same);
}

// Equal numbers of different types may mean different things.
bool is_same(PyObject* one, PyObject* constant) {
  if (one == constant) return true;
  if (Py_TYPE(one) != Py_TYPE(constant)) return false;
  if (PyTuple_CheckExact(one))
    return are_same(PySequence_Fast_ITEMS(one), static_cast<std::size_t>(PyTuple_GET_SIZE(one)),
                    constant);
  return is_constant(one) && PyObject_RichCompareBool(one, constant, Py_EQ) == 1;
}

THPObjectPtr tuple_of(PyObject* const* items, std::size_t count) {
  THPObjectPtr tuple(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; tuple && i < count; ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(items[i]));
  return tuple;
}

}  // namespace

const KeptOptions::Options* KeptOptions::find(PyObject* const* given, std::size_t count) const {
  for (Options& each : kept_)
    if (each.given && are_same(given, count, each.given.get())) return &each;
  return nullptr;
}

std::optional<Stack> KeptOptions::check(PyObject* const* given, std::size_t count) const {
  THPObjectPtr answer(PyObject_Vectorcall(check_, given, count, nullptr));
  if (!answer || !PyTuple_CheckExact(answer.get()) ||
      static_cast<std::size_t>(PyTuple_GET_SIZE(answer.get())) != parameters_.size())
    return std::nullopt;
  Stack taken;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    PyObject* const value = PyTuple_GET_ITEM(answer.get(), static_cast<Py_ssize_t>(i));
    if (!call::push(parameters_[i], value, taken)) return std::nullopt;
  }
  return taken;
}

bool KeptOptions::push(PyObject* const* given, std::size_t count, Stack& stack) const {
  const Options* options = find(given, count);
  Options fresh;
  if (options == nullptr) {
    fresh.taken = check(given, count);
    if (PyErr_Occurred()) return false;
    if (std::all_of(given, given + count, is_constant)) fresh.given = tuple_of(given, count);
    if (PyErr_Occurred()) return false;
    options = &fresh;
  }
  const bool is_taken = options->taken.has_value();
  if (is_taken) stack.insert(stack.end(), options->taken->begin(), options->taken->end());
  if (fresh.given) kept_[oldest_++ % kept_.size()] = std::move(fresh);
  return is_taken;
}

}  // namespace syncfree::call
