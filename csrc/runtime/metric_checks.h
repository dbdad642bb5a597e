// What a metric checks in each call: whether hooks are set, whether anyone else holds its states,
// and whether a CUDA graph is being captured. In Python these checks take as long as a launch.
#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// all_unset, are_shared, is_held_by_more, look_into_storages, is_stream_capturing.
void add_metric_checks(pybind11::module_& module);

}  // namespace syncfree::runtime
