// How a share of units falls into pieces (see ssim_backward_job.cuh).
#pragma once

#include "ssim/ssim_backward_job.cuh"

namespace syncfree::ssim {

inline constexpr int kUnitRows = 8;  // of a unit; planes are cut at multiples of it

// Calls `run(plane, strip, top, end)` for each piece of the units [unit, end): rows [top, end) of a
// plane's strip.
template <class Strips, class Run>
__device__ void for_each_piece(const Strips& strips, int height, std::int64_t unit,
                               std::int64_t end, const Run& run) {
  while (unit < end) {
    const std::int64_t strip = unit / strips.units, plane = strip / strips.strips;
    const int first = static_cast<int>(unit - strip * strips.units);
    const int count = static_cast<int>(min(std::int64_t{strips.units - first}, end - unit));
    run(plane, static_cast<int>(strip - plane * strips.strips), first * kUnitRows,
        min((first + count) * kUnitRows, height));
    unit += count;
  }
}

}  // namespace syncfree::ssim
