// Multi-scale structural similarity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "syncfree/launch.h"
#include "syncfree/options.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

// What happens to the means of the scales before their powers are multiplied.
enum class Normalize : std::int32_t {
  kNone = SYNCFREE_NO_NORMALIZATION,
  kRelu = SYNCFREE_RELU,      // max(x, 0)
  kSimple = SYNCFREE_SIMPLE,  // (x + 1) / 2
};

struct MsSsimOptions {
  // Exponents, finest scale first, one for each scale. The default is that of Wang, Simoncelli and
  // Bovik (2003).
  std::vector<double> betas{0.0448, 0.2856, 0.3001, 0.2363, 0.1333};
  Normalize normalize = Normalize::kRelu;
  Window window = {};  // `valid` is refused
  Reduction reduction = Reduction::kMean;
  double k1 = 0.01;
  double k2 = 0.03;

  syncfree_ms_ssim_options to_c(const Range& range) const {
    syncfree_ms_ssim_options all{};
    all.range = range.to_c();
    all.window = window.to_c();
    all.k1 = k1;
    all.k2 = k2;
    constexpr std::size_t most = sizeof(all.betas) / sizeof(all.betas[0]);
    std::copy_n(betas.begin(), std::min(betas.size(), most), all.betas);
    // The call refuses more than fit.
    all.scales = static_cast<std::int32_t>(std::min(betas.size(), most + 1));
    all.normalize = static_cast<std::int32_t>(normalize);
    all.reduction = static_cast<std::int32_t>(reduction);
    return all;
  }
};

// Images as for SSIM, with a height and width of at least 2^scales and kernel_size * (scales -
// 1)^2, which is 176 with the defaults. The images of all scales but the first are kept in scratch
// memory: a third of the inputs' elements (a seventh for volumes), as float32, or as float64 for
// float64 `preds`.
inline Status ms_ssim(const ConstTensorView& preds, const ConstTensorView& target,
                      const Range& range, const TensorView& value,
                      const MsSsimOptions& options = {}, const Launch& launch = {}) {
  const syncfree_ms_ssim_options all = options.to_c(range);
  const syncfree_launch where = launch.to_c();
  return detail::status_of(syncfree_ms_ssim(preds.get(), target.get(), value.get(), &all, &where));
}

}  // namespace syncfree
