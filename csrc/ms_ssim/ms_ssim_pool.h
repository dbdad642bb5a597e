// Pools several scales of a pyramid at once, where no SSIM pass writes the next scale's images.
#pragma once

#include <cuda_runtime_api.h>

#include "ms_ssim/ms_ssim.h"

namespace syncfree::ms_ssim {

// From the images of scale `finest`, which exist, to those of the last scale. For two-dimensional
// images that are not float64.
cudaError_t pool_scales(const Problem& problem, int finest, cudaStream_t stream);

}  // namespace syncfree::ms_ssim
