// The timer as Python types.
#pragma once

#include <pybind11/pybind11.h>

namespace syncfree::runtime {

// RegionTimer and Region.
void add_region_types(pybind11::module_& module);

// EventPair, ClockStamp, spin and cuda_status.
void add_event_types(pybind11::module_& module);

// Sets syncfree.errors.TimerError as Python's error.
void set_timer_error(const char* message);

}  // namespace syncfree::runtime
