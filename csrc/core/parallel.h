// Threads come from the caller, so that torch's pool (and torch.set_num_threads) or a C++ user's
// own pool serves the CPU kernels.
#pragma once

#include <cstdint>
#include <type_traits>

namespace syncfree {

// Splits [begin, end) into ranges of at least `grain` and runs `body(b, e, context)` on each.
using ParallelFor = void (*)(std::int64_t begin, std::int64_t end, std::int64_t grain,
                             void (*body)(std::int64_t, std::int64_t, void*), void* context);

inline void run_serially(std::int64_t begin, std::int64_t end, std::int64_t,
                         void (*body)(std::int64_t, std::int64_t, void*), void* context) {
  if (begin < end) body(begin, end, context);
}

template <class F>
void parallel_ranges(ParallelFor parallel_for, std::int64_t begin, std::int64_t end,
                     std::int64_t grain, F&& f) {
  parallel_for(
      begin, end, grain,
      [](std::int64_t b, std::int64_t e, void* context) {
        (*static_cast<std::remove_reference_t<F>*>(context))(b, e);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace syncfree
