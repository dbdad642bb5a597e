// Multi-scale structural similarity of tensors.
#pragma once

#include "syncfree/ms_ssim.h"
#include "syncfree/torch/ssim.h"

namespace syncfree {

// The value of Python's `multiscale_structural_similarity_index_measure`, bit for bit: float64 for
// float64 `preds`, else float32. The work is queued on the current stream of the images' device and
// nothing waits. Throws c10::Error for wrong input.
inline at::Tensor ms_ssim(const at::Tensor& preds, const at::Tensor& target, const Range& range,
                          const MsSsimOptions& options = {}) {
  const at::ScalarType dtype = preds.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor value = detail::empty_values(preds, options.reduction, dtype);
  detail::run_on(preds, true, [&](const Launch& launch) {
    return ms_ssim(view(preds), view(target), range, result_view(value), options, launch);
  });
  return value;
}

}  // namespace syncfree
