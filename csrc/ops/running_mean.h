// The states of a mean over batches, checked.
#pragma once

#include "core/running_mean.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// `similarity` may be null.
RunningMean running_mean(Tensor* similarity, Tensor& total, const Tensor& preds);

}  // namespace syncfree::ops
