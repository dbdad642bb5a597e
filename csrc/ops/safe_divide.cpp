// torch.ops.syncfree.safe_divide
#include "safe_divide/safe_divide.h"

#include <algorithm>

#include "ops/any_rank.h"
#include "ops/backend.h"

namespace syncfree::ops {
namespace {

// The view with `sizes`, repeating what has size one or is missing in front.
template <class View>
View broadcast(const View& view, const std::vector<std::int64_t>& sizes) {
  View out = view;
  out.rank = static_cast<int>(sizes.size());
  if constexpr (requires { out.size.resize(sizes.size()); }) {
    out.size.resize(sizes.size());
    out.stride.resize(sizes.size());
  }
  for (int d = 0; d < out.rank; ++d) {
    const int from = d - (out.rank - view.rank);
    out.size[d] = sizes[static_cast<std::size_t>(d)];
    out.stride[d] = from < 0 || view.size[from] == 1 ? 0 : view.stride[from];
  }
  return out;
}

std::vector<std::int64_t> common_sizes(const Tensor& num, const Tensor& denom) {
  const auto a = num.sizes(), b = denom.sizes();
  std::vector<std::int64_t> sizes(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (!(x == y || x == 1 || y == 1))
      fail_runtime("Expected `num` and `denom` of shapes that broadcast, but got ", shape_text(num),
                   " and ", shape_text(denom), ".");
    sizes[sizes.size() - 1 - i] = x == 1 ? y : x;
  }
  return sizes;
}

Operands operands_of(const Tensor& num, const Tensor& denom,
                     const std::vector<std::int64_t>& sizes) {
  if (sizes.size() <= kMaxRank)
    return {broadcast(view_of(num), sizes), broadcast(view_of(denom), sizes), 0, {}};
  return merged(num, broadcast(wide_view_of(num), sizes), denom,
                broadcast(wide_view_of(denom), sizes), 0);
}

// Integers count as float32; two floating types meet as in torch, where a scalar tensor yields.
DType result_dtype(DType num, bool num_is_scalar, DType denom, bool denom_is_scalar) {
  const auto as_float = [](DType t) { return is_floating(t) ? t : DType::kFloat32; };
  const DType a = as_float(num), b = as_float(denom);
  if (num_is_scalar != denom_is_scalar) return num_is_scalar ? b : a;
  if (a == b) return a;
  return a == DType::kFloat64 || b == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

Tensor safe_divide(const Tensor& num, const Tensor& denom, double zero_division) {
  check_same_device(num, denom, "num", "denom");
  const std::vector<std::int64_t> sizes = common_sizes(num, denom);
  check_dtypes(num, denom, "num", "denom");
  const Operands operands = operands_of(num, denom, sizes);
  syncfree::safe_divide::Problem problem;
  problem.num = operands.first;
  problem.denom = operands.second;
  problem.zero_division = zero_division;
  problem.result_dtype =
      result_dtype(problem.num.dtype, num.dim() == 0, problem.denom.dtype, denom.dim() == 0);
  Tensor quotient = empty_of_any_rank(sizes, problem.result_dtype, num);
  problem.quotient = quotient.mutable_data_ptr();
  execute(problem, num);
  return quotient;
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def("safe_divide(Tensor num, Tensor denom, float zero_division) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("safe_divide", TORCH_BOX(&safe_divide));
}

}  // namespace syncfree::ops
