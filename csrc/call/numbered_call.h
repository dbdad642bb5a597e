// Operators whose calls may get numbers. An error that arrives some calls later names the number,
// by which the Python line of its call is found.
#pragma once

#include <cstddef>
#include <cstdint>

#include "operator.h"

namespace syncfree::call {

struct NumberedOperator {
  Operator op;              // its last argument but one is the flags
  PyObject* number;         // flags -> the same flags with a number for this call
  std::int64_t has_number;  // the bit of the flags that asks for a number
  PyObject* failed;  // (error, *arguments): returns an answer in place of the error, or raises
};

// None if the operator has no flags there. Takes references to `number` and `failed`.
std::optional<NumberedOperator> numbered_operator(const char* name, const char* overload,
                                                  PyObject* number, std::int64_t has_number,
                                                  PyObject* failed);

// Whether a call from Python runs the operator directly and at once: not with keywords, not under a
// mode of Python, and not while torch.jit.trace records it, since what is recorded runs elsewhere,
// perhaps in a process with other call numbers.
bool is_plain(PyObject* names);

// Runs the operator on a complete stack. If it raises, the result is what `failed` returns for the
// error and the `arguments` of the call.
PyObject* run(const NumberedOperator& call, Stack&& stack, PyObject* const* arguments,
              std::size_t count);

}  // namespace syncfree::call
