// An operator of ours in torch's dispatcher, with its arguments and results in Python.
//
// A plain argument is exactly of its parameter's type: an int, a float, a torch.Tensor and no
// subclass of it. A plain call has only such arguments, no keywords, and no function mode around
// it. Every other call takes torch's own path.
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

constexpr std::size_t kImages = 2;  // of a call: preds and target

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

// None if it takes or returns a type that is not handled here.
std::optional<Operator> operator_of(const char* name, const char* overload);

// Whether `count` of its parameters, from `begin` on, are tensors; they may be optional.
bool are_tensors(const Operator& op, std::size_t begin, std::size_t count);
std::vector<Parameter> parameters_behind(const Operator& op, std::size_t count);

// Pushes a plain argument. False for any other: torch may convert or refuse it.
bool push(const Parameter& parameter, PyObject* object, Stack& stack);

// Whether a mode of Python has to see every call: torch's own path asks it.
bool function_mode_is_on();

// Pushes the arguments of a vectorcall. False if the call is not plain.
bool push_all(const Operator& op, PyObject* const* arguments, std::size_t flagged, PyObject* names,
              Stack& stack);

// Whether autograd nodes of C++ can handle such images: not nested ones, and none while
// torch.jit.trace records.
bool takes_nodes(const at::Tensor& preds, const at::Tensor& target);

// None, one result, or a tuple of several, as a new reference; null with an error set.
PyObject* results_of(Stack&& stack);

// Calls the operator on a complete stack, without the GIL, and returns its `results_of`.
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

// Returns what `run` returns, and translates C++ exceptions like pybind11, which torch's own path
// goes through. torch's macro alone would make a RuntimeError of each that is not torch's own.
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
  // Thrown as an exception, so that torch's macro emits the warnings that it has held back.
  python_error error;
  error.persist();
  throw error;
  END_HANDLE_TH_ERRORS
}

}  // namespace syncfree::call
