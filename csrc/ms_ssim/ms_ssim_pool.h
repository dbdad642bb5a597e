// The images of a pyramid's scales at once, where no pass over a scale makes those of the next.
#pragma once

#include <cuda_runtime_api.h>

#include "ms_ssim/ms_ssim.h"

namespace syncfree::ms_ssim {

// From those of scale `finest`, which is there, on. Two-dimensional images that are not float64.
cudaError_t pool_scales(const Problem& problem, int finest, cudaStream_t stream);

}  // namespace syncfree::ms_ssim
