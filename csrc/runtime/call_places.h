// The Python lines from which the last few thousand calls of metrics came, by number.
//
// An error that a kernel finds is read some calls later, when the frames of its call are gone.
// Noting each call in Python costs more than the rest of a small metric's host time: sys._getframe
// raises an audit event, to which a dependency of torch (filelock) listens with a Python function.
#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// CallPlaces.
void add_call_places_type(pybind11::module_& module);

}  // namespace syncfree::runtime
