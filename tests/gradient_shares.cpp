// The shares of the warps that find gradients, for the host.
#include "ssim/gradient_shares.h"

extern "C" std::int64_t begin_of_gradient_share(std::int64_t planes, int strips, int units,
                                                int rows_of_unit, std::int64_t walker,
                                                std::int64_t walkers) {
  const syncfree::ssim::GradientStrips cut{strips, 0, units, rows_of_unit};
  return syncfree::ssim::GradientShares(planes, cut).begin(walker, walkers);
}
