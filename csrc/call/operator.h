// An operator of ours as torch's dispatcher knows it, with its arguments and results in Python.
#pragma once

#include <Python.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Exceptions.h>

#include <cstddef>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

namespace syncfree::call {

using Stack = std::vector<c10::IValue>;

constexpr std::size_t kImages = 2;  // of one call: preds and target

enum class Kind { kTensor, kInt, kFloat, kBool, kInts, kFloats };

struct Parameter {
  Kind kind;
  bool optional = false;

  bool operator==(const Parameter&) const = default;
};

struct Operator {
  c10::OperatorHandle handle;
  std::vector<Parameter> parameters;
};

// None where it takes or returns what is not known here.
std::optional<Operator> operator_of(const char* name, const char* overload);

// Whether those of its parameters are tensors, some of them perhaps optional.
bool are_tensors(const Operator& op, std::size_t begin, std::size_t count);
std::vector<Parameter> parameters_behind(const Operator& op, std::size_t count);

// False for what is not plainly of the type, which torch may know to convert or to refuse.
bool push(const Parameter& parameter, PyObject* object, Stack& stack);

// A mode of Python that wants to see every call: torch's own way asks it.
bool function_mode_is_on();

// The arguments of a vectorcall. False for those that are not plainly of their types or have names,
// or under a function mode: such calls go torch's own way.
bool push_all(const Operator& op, PyObject* const* arguments, std::size_t flagged, PyObject* names,
              Stack& stack);

// Whether nodes of C++ know what to do with such images: not with nested ones, nor where
// torch.jit.trace records.
bool takes_nodes(const at::Tensor& preds, const at::Tensor& target);

// Nothing, one result, or a tuple of them; a new reference, null with an error set.
PyObject* results_of(Stack&& stack);

// What the operator makes of all its arguments, as `results_of` gives it.
PyObject* run(const Operator& op, Stack&& stack);

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// What `run` returns, with C++'s exceptions as pybind11 makes them Python's, which torch's own way
// goes through. Torch's macro alone would make a RuntimeError of each that is not torch's own.
template <class Run>
PyObject* with_errors(Run&& run) {
  HANDLE_TH_ERRORS
  try {
    PyObject* const result = run();
    if (result != nullptr) return result;
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::range_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::domain_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::length_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  // As an exception, so that torch gives out the warnings it has kept around the error.
  python_error error;
  error.persist();
  throw error;
  END_HANDLE_TH_ERRORS
}

}  // namespace syncfree::call
