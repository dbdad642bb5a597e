// For C functions over csrc/runtime, which calls the CUDA driver directly.
#pragma once

#include "api/failure.h"
#include "runtime/cuda_driver.h"
#include "runtime/region_timer.h"

namespace syncfree::api {

// Like `guarded`, but also turns errors of the driver and of a timer into a status.
template <class Body>
syncfree_status_code guarded_by_driver(Body&& body) noexcept {
  return guarded([&] {
    try {
      body();
    } catch (const runtime::cuda::Error& error) {
      fail(SYNCFREE_CUDA_ERROR, error.what(), ".");
    } catch (const runtime::TimerLimit& limit) {
      fail(SYNCFREE_INVALID_ARGUMENT, limit.what(), ".");
    }
  });
}

inline void check_device_index(std::int32_t device_index) {
  if (device_index < 0)
    fail(SYNCFREE_WRONG_DEVICE, "Expected the index of a CUDA device, but got ", device_index, ".");
}

}  // namespace syncfree::api
