// The host's monotonic clock.
#pragma once

#include <chrono>

namespace syncfree::runtime {

// On Linux the clock of Python's time.perf_counter, in microseconds.
inline double host_microseconds() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace syncfree::runtime
