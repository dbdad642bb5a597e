// Where kernels record bad values, about which they must not raise an error themselves.
#pragma once

#include <cstdint>

#include "core/error_record.h"
#include "ops/cuda_context.h"

namespace syncfree::ops {

// Returns a slot of the context's device: mapped host memory that the device writes and the host
// reads like any variable, so that reading never waits. A device's slots are allocated at the first
// use of one and never freed; were another device current then, CUDA would make a context there.
// Raises the error that an earlier call left in the slot.
ErrorSlot* checked_error_slot(const CudaContext& context, std::int64_t slot);

}  // namespace syncfree::ops
