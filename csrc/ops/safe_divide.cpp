// torch.ops.syncfree.safe_divide
#include "safe_divide/safe_divide.h"

#include "ops/backend.h"
#include "ops/broadcast.h"

namespace syncfree::ops {
namespace {

Tensor safe_divide(const Tensor& num, const Tensor& denom, double zero_division) {
  check_same_device(num, denom, "num", "denom");
  const std::vector<std::int64_t> sizes = common_sizes(num, denom, "num", "denom");
  check_dtypes(num, denom, "num", "denom");
  const Operands operands = broadcast(num, denom, sizes);
  syncfree::safe_divide::Problem problem;
  problem.num = operands.first;
  problem.denom = operands.second;
  problem.zero_division = zero_division;
  problem.result_dtype = common_dtype(as_floating(problem.num.dtype), num.dim() == 0,
                                      as_floating(problem.denom.dtype), denom.dim() == 0);
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
