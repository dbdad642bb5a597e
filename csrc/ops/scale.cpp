// torch.ops.syncfree.scale_
#include "scale/scale.h"

#include "ops/backend.h"

namespace syncfree::ops {
namespace {

// Of a tensor that fills its memory without gaps, in whatever order, as a fresh gradient does.
syncfree::scale::Elements elements_of(const char* name, Tensor& tensor) {
  if (dtype_of(tensor) != DType::kFloat32)
    fail_runtime("Expected `", name, "` to be float32, but got ",
                 torch::headeronly::toString(tensor.scalar_type()), ".");
  return {static_cast<float*>(tensor.mutable_data_ptr()), tensor.numel()};
}

// What has no elements is left out.
void scale_(Tensor first, Tensor second, const Tensor& factor) {
  check_same_device(factor, first, "factor", "first");
  check_same_device(second, first, "second", "first");
  if (factor.numel() != 1)
    fail_value("Expected `factor` to be one number, but got shape ", shape_text(factor), ".");
  if (!is_floating(dtype_of(factor)))
    fail_runtime("Expected `factor` to be of a floating dtype, but got ",
                 torch::headeronly::toString(factor.scalar_type()), ".");
  syncfree::scale::Problem problem;
  problem.parts[0] = elements_of("first", first);
  problem.parts[1] = elements_of("second", second);
  problem.factor = factor.data_ptr();
  problem.factor_dtype = dtype_of(factor);
  execute(problem, first);
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def("scale_(Tensor(a!) first, Tensor(b!) second, Tensor factor) -> ()");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("scale_", TORCH_BOX(&scale_));
}

}  // namespace syncfree::ops
