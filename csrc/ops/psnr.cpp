// torch.ops.syncfree.psnr
#include "psnr/psnr.h"

#include <algorithm>

#include "ops/backend.h"

namespace syncfree::ops {
namespace {

// `dim` in [-rank, rank) once each; none means all.
std::vector<bool> reduced_dims(const Tensor& tensor, const std::vector<std::int64_t>& dim) {
  const std::int64_t rank = tensor.dim();
  std::vector<bool> reduced(static_cast<std::size_t>(rank), dim.empty());
  for (const std::int64_t d : dim) {
    if (d < -rank || d >= rank)
      fail<std::out_of_range>("Expected every `dim` in the range [", -rank, ", ", rank - 1,
                              "], but got ", d, " for shape ", shape_text(tensor), ".");
    auto&& slot = reduced[static_cast<std::size_t>(d < 0 ? d + rank : d)];
    if (!(!slot))
      fail_runtime("Expected each dimension at most once in `dim`, but got ", d, " twice.");
    slot = true;
  }
  return reduced;
}

// The view with the kept dimensions first, each group in its order.
TensorView kept_first(const TensorView& view, const std::vector<bool>& reduced) {
  TensorView out = view;
  int position = 0;
  for (const bool pass : {false, true})
    for (int d = 0; d < view.rank; ++d) {
      if (reduced[static_cast<std::size_t>(d)] != pass) continue;
      out.size[position] = view.size[d];
      out.stride[position++] = view.stride[d];
    }
  return out;
}

DType result_dtype(const Tensor& preds, const Tensor& target, bool pooled) {
  const DType a = dtype_of(preds), b = dtype_of(target);
  if (a == DType::kFloat64 || b == DType::kFloat64) return DType::kFloat64;
  if (pooled) return DType::kFloat32;
  const auto as_float = [](DType t) { return is_floating(t) ? t : DType::kFloat32; };
  return as_float(a) == as_float(b) ? as_float(a) : DType::kFloat32;
}

Tensor psnr(const Tensor& preds, const Tensor& target, double data_range,
            std::optional<std::vector<double>> interval, double base, std::int64_t reduction,
            std::optional<std::vector<std::int64_t>> dim) {
  check_same_shape(preds, target);
  check_same_device(preds, target);
  syncfree::psnr::Problem problem;
  problem.preds = view_of(preds);
  problem.target = view_of(target);
  problem.range.value = data_range;
  if (interval.has_value()) {
    if (interval->size() != 2) fail_value("Expected `interval` to be (low, high).");
    problem.range = {DataRange::Source::kInterval, data_range, (*interval)[0], (*interval)[1]};
  }
  problem.base = base;
  problem.reduction = static_cast<Reduction>(reduction);

  std::vector<std::int64_t> sizes;
  if (dim.has_value()) {
    const std::vector<bool> reduced = reduced_dims(preds, *dim);
    problem.preds = kept_first(problem.preds, reduced);
    problem.target = kept_first(problem.target, reduced);
    problem.kept = static_cast<int>(std::count(reduced.begin(), reduced.end(), false));
    if (problem.reduction == Reduction::kNone)
      sizes.assign(problem.preds.size, problem.preds.size + problem.kept);
  }
  problem.result_dtype = result_dtype(preds, target, problem.kept == 0);
  Tensor value = empty_like_device(sizes, problem.result_dtype, preds);
  problem.value = value.mutable_data_ptr();
  if (problem.reduction != Reduction::kNone || value.numel() > 0) execute(problem, preds);
  return value;
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "psnr(Tensor preds, Tensor target, float data_range, float[]? interval, float base, "
      "int reduction, int[]? dim) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("psnr", TORCH_BOX(&psnr));
}

}  // namespace syncfree::ops
