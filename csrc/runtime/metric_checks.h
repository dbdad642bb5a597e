// What a metric looks at before each call: whether hooks are set, and who else holds its states.
//
// In Python these looks take as long as the launch that they precede: half a microsecond for the
// hooks and a quarter for four states on an H200's host, of nine for a whole update.
#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// all_empty, is_held_by_more.
void add_metric_checks(pybind11::module_& module);

}  // namespace syncfree::runtime
