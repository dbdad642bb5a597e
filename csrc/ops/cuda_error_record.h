// Where kernels leave word of values that they must not raise themselves.
#pragma once

#include "core/error_record.h"

namespace syncfree::ops {

// The record of a CUDA device: host memory that the device writes through a mapping and the host
// reads like any variable, so that looking never waits. Allocated at its first use, then kept for
// good.
ErrorRecord* device_error_record(int device);

}  // namespace syncfree::ops
