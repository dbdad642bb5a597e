// Arguments and memory that the ops of multi-scale SSIM have in common.
#pragma once

#include <optional>
#include <vector>

#include "ms_ssim/ms_ssim.h"
#include "ops/ssim_arguments.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// Checked as TorchMetrics checks them; without results and pyramids.
ms_ssim::Problem make_ms_ssim_problem(const Tensor& preds, const Tensor& target,
                                      const WindowArguments& window,
                                      std::optional<double> data_range,
                                      const std::optional<std::vector<double>>& interval, double k1,
                                      double k2, const std::vector<double>& betas,
                                      std::int64_t normalize, std::int64_t reduction);

// Fresh tensors for the value and for a pyramid, this one without elements where it is not wanted.
Tensor make_value(const ms_ssim::Problem& problem, const Tensor& images);
Tensor make_pyramid(const ms_ssim::Problem& problem, const Tensor& images, bool wanted = true);

}  // namespace syncfree::ops
