// torch's broadcasting and type promotion: sizes of one repeat, and the wider type wins.
#include "ops/broadcast.h"

#include <algorithm>

namespace syncfree::ops {
namespace {

template <class View>
View repeated(const View& view, const std::vector<std::int64_t>& sizes) {
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

}  // namespace

std::vector<std::int64_t> common_sizes(const Tensor& a, const Tensor& b, const char* a_name,
                                       const char* b_name) {
  const auto first = a.sizes(), second = b.sizes();
  std::vector<std::int64_t> sizes(std::max(first.size(), second.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t x = i < first.size() ? first[first.size() - 1 - i] : 1;
    const std::int64_t y = i < second.size() ? second[second.size() - 1 - i] : 1;
    if (!(x == y || x == 1 || y == 1))
      fail_runtime("Expected `", a_name, "` and `", b_name, "` of shapes that broadcast, but got ",
                   shape_text(a), " and ", shape_text(b), ".");
    sizes[sizes.size() - 1 - i] = x == 1 ? y : x;
  }
  return sizes;
}

Operands broadcast(const Tensor& a, const Tensor& b, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() <= kMaxRank)
    return {repeated(view_of(a), sizes), repeated(view_of(b), sizes), 0, {}};
  return merged(a, repeated(wide_view_of(a), sizes), b, repeated(wide_view_of(b), sizes), 0);
}

DType common_dtype(DType a, bool a_is_scalar, DType b, bool b_is_scalar) {
  if (a_is_scalar != b_is_scalar) return a_is_scalar ? b : a;
  if (a == b) return a;
  return a == DType::kFloat64 || b == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace syncfree::ops
