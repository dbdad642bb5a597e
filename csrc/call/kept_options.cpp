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

// Equal numbers of two types may mean different things.
bool is_same(PyObject* one, PyObject* constant) {
  if (one == constant) return true;
  if (Py_TYPE(one) != Py_TYPE(constant)) return false;
  if (PyTuple_CheckExact(one)) {
    PyObject **const items = PySequence_Fast_ITEMS(one), **const end =
                                                             items + PyTuple_GET_SIZE(one);
    PyObject** const others = PySequence_Fast_ITEMS(constant);
    return std::equal(items, end, others, others + PyTuple_GET_SIZE(constant), is_same);
  }
  return is_constant(one) && PyObject_RichCompareBool(one, constant, Py_EQ) == 1;
}

}  // namespace

const KeptOptions::Options* KeptOptions::find(PyObject* const* given, std::size_t count) const {
  for (const Options& each : kept_) {
    const auto is_same_as_kept = [](PyObject* one, const THPObjectPtr& kept) {
      return is_same(one, const_cast<THPObjectPtr&>(kept).get());
    };
    if (each.is_known && std::equal(given, given + count, each.given.begin(), each.given.end(),
                                    is_same_as_kept))
      return &each;
  }
  return nullptr;
}

KeptOptions::Options KeptOptions::check(PyObject* const* given, std::size_t count) const {
  Options options;
  THPObjectPtr answer(PyObject_Vectorcall(check_, given, count, nullptr));
  if (!answer || !PyTuple_CheckExact(answer.get()) ||
      static_cast<std::size_t>(PyTuple_GET_SIZE(answer.get())) != parameters_.size())
    return options;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    PyObject* const value = PyTuple_GET_ITEM(answer.get(), static_cast<Py_ssize_t>(i));
    if (!call::push(parameters_[i], value, options.taken)) return options;
  }
  for (std::size_t i = 0; i < count; ++i) options.given.emplace_back(Py_NewRef(given[i]));
  options.is_known = true;
  return options;
}

bool KeptOptions::push(PyObject* const* given, std::size_t count, Stack& stack) const {
  const Options* options = find(given, count);
  Options fresh;
  if (options == nullptr) {
    fresh = check(given, count);
    options = &fresh;
  }
  if (!options->is_known) return false;
  stack.insert(stack.end(), options->taken.begin(), options->taken.end());
  if (options == &fresh && std::all_of(given, given + count, is_constant))
    kept_[oldest_++ % kept_.size()] = std::move(fresh);
  return true;
}

}  // namespace syncfree::call
