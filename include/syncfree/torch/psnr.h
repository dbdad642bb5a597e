// Peak signal-to-noise ratio of tensors.
#pragma once

#include <c10/core/WrapDimMinimal.h>

#include <optional>
#include <vector>

#include "syncfree/psnr.h"
#include "syncfree/torch/tensor.h"

namespace syncfree {

struct TensorPsnrOptions {
  std::vector<std::int64_t> dim = {};  // averaged over before the logarithm; none: all
  Reduction reduction = Reduction::kMean;
  double base = 10.0;
};

namespace detail {

// float64 if an input is; else float32 if all dimensions are averaged, and the inputs' common
// floating dtype if some are kept.
inline at::ScalarType psnr_dtype(const at::Tensor& preds, const at::Tensor& target, bool pooled) {
  const auto a = preds.scalar_type(), b = target.scalar_type();
  if (a == at::kDouble || b == at::kDouble) return at::kDouble;
  if (pooled) return at::kFloat;
  const auto as_float = [](at::ScalarType t) { return at::isFloatingType(t) ? t : at::kFloat; };
  return as_float(a) == as_float(b) ? as_float(a) : at::kFloat;
}

}  // namespace detail

// The value of Python's `peak_signal_noise_ratio`, bit for bit, as a tensor on the inputs' device.
// The work is queued on their current stream and nothing waits. Throws c10::Error for wrong input.
inline at::Tensor psnr(const at::Tensor& preds, const at::Tensor& target, const Range& range,
                       const TensorPsnrOptions& options = {}) {
  TORCH_CHECK(preds.sizes() == target.sizes(),
              "syncfree: expected `preds` and `target` to have the same shape, but got ",
              detail::shape_text(preds), " and ", detail::shape_text(target), ".");
  std::vector<bool> averaged(preds.dim(), options.dim.empty());
  for (const std::int64_t d : options.dim)
    averaged[c10::maybe_wrap_dim(d, preds.dim(), /*wrap_scalar=*/false)] = true;
  std::vector<std::int64_t> order, sizes;
  for (const bool pass : {false, true})
    for (std::int64_t d = 0; d < preds.dim(); ++d) {
      if (averaged[d] != pass) continue;
      order.push_back(d);
      if (!pass) sizes.push_back(preds.size(d));
    }

  PsnrOptions all;
  all.kept = static_cast<int>(sizes.size());
  all.reduction = options.reduction;
  all.base = options.base;
  const at::ScalarType dtype = detail::psnr_dtype(preds, target, sizes.empty());
  if (options.reduction != Reduction::kNone) sizes.clear();
  const at::Tensor value = detail::empty_like_device(sizes, dtype, preds);
  const at::Tensor a = preds.permute(order), b = target.permute(order);
  detail::run_on(preds, false, [&](const Launch& launch) {
    return psnr(view(a), view(b), range, result_view(value), all, launch);
  });
  return value;
}

}  // namespace syncfree
