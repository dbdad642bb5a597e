// Sets of options that Python has checked, each with what an operator takes for it.
//
// A metric's options are the same in every step of a loop. To look them up in Python and to reach
// the operator from there takes three frames, half a microsecond of the host's eight.
#pragma once

#include <torch/csrc/utils/object_ptr.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "operator.h"

namespace syncfree::call {

class KeptOptions {
 public:
  // `check` makes a tuple of options: values of these parameters, which it is asked for once for
  // each set of constants. What else it makes is not known here.
  KeptOptions(PyObject* check, std::vector<Parameter> parameters)
      : check_(Py_NewRef(check)), parameters_(std::move(parameters)) {}

  // Adds what the operator takes. False, with an error set, where `check` refuses the options, and
  // without one where its answer is not known.
  bool push(PyObject* const* given, std::size_t count, Stack& stack) const;

 private:
  struct Options {
    THPObjectPtr given;  // in a tuple
    Stack taken;
  };

  const Stack* find(PyObject* const* given, std::size_t count) const;
  bool check(PyObject* const* given, std::size_t count, Stack& taken) const;

  PyObject* check_;
  std::vector<Parameter> parameters_;
  mutable std::array<Options, 8> kept_ = {};  // which the GIL guards
  mutable std::size_t oldest_ = 0;
};

}  // namespace syncfree::call
