#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// Adds the functions listen_to_operators and running_operators.
void bind_operators(pybind11::module_& module);

}  // namespace syncfree::runtime
