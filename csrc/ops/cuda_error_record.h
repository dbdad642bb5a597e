// Where kernels leave word of values that they must not raise themselves.
#pragma once

#include <cstdint>

#include "core/error_record.h"

namespace syncfree::ops {

// A slot of a CUDA device: host memory that the device writes through a mapping and the host reads
// like any variable, so that looking never waits. The device's slots are allocated at the first use
// of one, then kept for good. Raises what an earlier call left in the slot.
ErrorSlot* checked_error_slot(int device, std::int64_t slot);

}  // namespace syncfree::ops
