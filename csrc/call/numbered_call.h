// An operator of which each call may get a number, by which an error that comes late finds its
// line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "operator.h"

namespace syncfree::call {

struct NumberedOperator {
  Operator op;              // takes flags before its last argument
  PyObject* number;         // flags -> the same with a number for this call
  std::int64_t has_number;  // a bit of the flags of calls that get one
  PyObject* failed;  // (error, *arguments): an answer to what the operator refused, or raises
};

// None where the operator is not such a one. References are taken.
std::optional<NumberedOperator> numbered_operator(const char* name, const char* overload,
                                                  PyObject* number, std::int64_t has_number,
                                                  PyObject* failed);

// Whether a call from Python goes to the operator as it is and at once: not under modes of Python,
// nor where it is recorded, for what is runs at other places, perhaps in a process with other
// numbers.
bool is_plain(PyObject* names);

// Runs it on all its arguments. Where it raises, the answer is that of `failed` to the arguments of
// the call.
PyObject* run(const NumberedOperator& call, Stack&& stack, PyObject* const* arguments,
              std::size_t count);

}  // namespace syncfree::call
