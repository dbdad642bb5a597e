#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// Adds the classes DriverWatch, DriverCall and OwnCalls, and the function symbols.
void bind_driver_watch(pybind11::module_& module);

}  // namespace syncfree::runtime
