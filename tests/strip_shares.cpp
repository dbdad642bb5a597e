// The shares of SSIM's walks, and how high their units are, for the host.
#include "ssim/strip_shares.h"

#include "ssim/rows_of_unit.h"

extern "C" std::int64_t begin_of_share(std::int64_t total, std::int64_t units_of_strip,
                                       int rows_of_unit, std::int64_t walker,
                                       std::int64_t walkers) {
  return syncfree::ssim::begin_of_share(total, units_of_strip, rows_of_unit, walker, walkers);
}

extern "C" std::int64_t rows_of_unit(std::int64_t strips, std::int64_t height, int warps) {
  return syncfree::ssim::rows_of_unit(strips, height, warps);
}
