// Where kernels record bad values, about which they must not raise an error themselves.
#pragma once

#include <cstdint>

#include "core/error_record.h"

namespace syncfree::ops {

// Returns a slot of a CUDA device: mapped host memory that the device writes and the host reads
// like any variable, so that reading never waits. A device's slots are allocated at the first use
// of one and never freed. Raises the error that an earlier call left in the slot.
ErrorSlot* checked_error_slot(int device, std::int64_t slot);

}  // namespace syncfree::ops
