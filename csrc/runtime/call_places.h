// Where calls of metrics came from: the last few thousand, by number.
//
// An error that a kernel finds is read calls later, when the frames of the call are gone. Noting
// each call in Python costs more than the rest of a small metric's host time: sys._getframe raises
// an audit event, to which a library of torch's own (filelock) listens with a function in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// CallPlaces.
void add_call_places_type(pybind11::module_& module);

}  // namespace syncfree::runtime
