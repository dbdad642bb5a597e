// Arguments and memory shared by the ops of multi-scale SSIM. A pyramid holds the images of all
// scales but the first.
#pragma once

#include <optional>
#include <vector>

#include "ms_ssim/ms_ssim.h"
#include "ops/ssim_arguments.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// The problem without results and pyramids; its arguments are checked as TorchMetrics checks them.
ms_ssim::Problem make_ms_ssim_problem(const Tensor& preds, const Tensor& target,
                                      const WindowArguments& window,
                                      std::optional<double> data_range,
                                      const std::optional<std::vector<double>>& interval, double k1,
                                      double k2, const std::vector<double>& betas,
                                      std::int64_t normalize, std::int64_t reduction);

// New tensors for the value and for a pyramid; a pyramid that is not wanted has no elements.
Tensor make_value(const ms_ssim::Problem& problem, const Tensor& images);
Tensor make_pyramid(const ms_ssim::Problem& problem, const Tensor& images, bool wanted = true);

}  // namespace syncfree::ops
