// torch.ops.syncfree.scale_ and may_scale
#include "scale/scale.h"

#include <algorithm>
#include <utility>

#include "ops/backend.h"

namespace syncfree::ops {
namespace {

// Whether it has no gaps in some order of its axes, like a new gradient.
bool fills_its_memory(const Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride and size
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) != 1) axes.emplace_back(tensor.stride(i), tensor.size(i));
  std::sort(axes.begin(), axes.end());
  std::int64_t expected = 1;
  for (const auto& [stride, size] : axes) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

syncfree::scale::Elements elements_of(const char* name, Tensor& tensor) {
  if (dtype_of(tensor) != DType::kFloat32)
    fail_runtime("Expected `", name, "` to be float32, but got ", dtype_text(tensor), ".");
  if (tensor.numel() > 0 && !fills_its_memory(tensor))
    fail_value("Expected `", name, "` to fill its memory, but it has gaps or repeats elements.");
  return {static_cast<float*>(tensor.mutable_data_ptr()), tensor.numel()};
}

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto at = [](const void* p) { return reinterpret_cast<std::intptr_t>(p); };
  return at(a) < at(b) + b_bytes && at(b) < at(a) + a_bytes;
}

// Multiplies both by `factor` in place; one without elements is left out.
void scale_(Tensor first, Tensor second, const Tensor& factor) {
  check_same_device(factor, first, "factor", "first");
  check_same_device(second, first, "second", "first");
  if (factor.numel() != 1)
    fail_value("Expected `factor` to be one number, but got shape ", shape_text(factor), ".");
  if (!is_floating(dtype_of(factor)))
    fail_runtime("Expected `factor` to be of a floating dtype, but got ", dtype_text(factor), ".");
  syncfree::scale::Problem problem;
  problem.parts[0] = elements_of("first", first);
  problem.parts[1] = elements_of("second", second);
  const auto& [a, b] = problem.parts;
  const auto bytes = [](const auto& part) {
    return part.count * static_cast<std::int64_t>(sizeof *part.data);
  };
  if (overlap(a.data, bytes(a), b.data, bytes(b)))
    fail_value("Expected `first` and `second` to share no memory.");
  for (const auto& part : problem.parts)
    if (overlap(part.data, bytes(part), factor.data_ptr(), size_of(dtype_of(factor))))
      fail_value("Expected `factor` to lie outside of what it multiplies.");
  problem.factor = factor.data_ptr();
  problem.factor_dtype = dtype_of(factor);
  execute(problem, first);
}

// Whether `scale_` may be called with these arguments: not while a CUDA graph is captured, as each
// replay would scale what the one before has scaled. A separate operator, since torch does not
// functionalize one that both writes to its arguments and returns a number.
bool may_scale([[maybe_unused]] const Tensor& first, const Tensor&, const Tensor&) {
#if defined(SYNCFREE_OPS_CUDA)
  return !CudaContext(first).is_capturing();
#else
  return true;
#endif
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def("scale_(Tensor(a!) first, Tensor(b!) second, Tensor factor) -> ()");
  library.def("may_scale(Tensor first, Tensor second, Tensor factor) -> bool");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("scale_", TORCH_BOX(&scale_));
  library.impl("may_scale", TORCH_BOX(&may_scale));
}

}  // namespace syncfree::ops
