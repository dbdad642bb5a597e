// The gradient of PSNR with respect to both operands: what is computed, and the CPU and CUDA
// launchers.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/clamp.h"
#include "core/data_range.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/tensor_view.h"
#include "core/workspace.h"
#include "psnr/psnr_math.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::psnr {

enum Operand { kPreds, kTarget, kGradPreds, kGradTarget, kOperands };

// All four walked together. Torch has no tensor of more dimensions.
struct Elements {
  static constexpr int kMostDims = 64;

  int rank = 0;
  int kept = 0;  // leading dimensions that index results
  std::int64_t size[kMostDims] = {};
  std::int64_t stride[kOperands][kMostDims] = {};

  std::int64_t count(int begin, int end) const {
    std::int64_t n = 1;
    for (int d = begin; d < end; ++d) n *= size[d];
    return n;
  }
  std::int64_t results() const { return count(0, kept); }
  std::int64_t reduced() const { return count(kept, rank); }
};

struct BackwardProblem {
  Elements elements;
  const void* preds = nullptr;
  const void* target = nullptr;
  void* grad_preds = nullptr;  // null where nobody asked for it
  void* grad_target = nullptr;
  DType dtype[kOperands] = {};

  const double* values = nullptr;  // PSNR of each result
  TensorView grad_value;           // contiguous over the results, or one element
  DataRange range;
  double base = 10.0;
  Reduction reduction = Reduction::kMean;

  bool in_double() const {
    return dtype[kPreds] == DType::kFloat64 || dtype[kTarget] == DType::kFloat64;
  }
};

// Fewer, longer dimensions where the layouts of all operands allow it. Logical order stays.
inline Elements merged(const Elements& e) {
  Elements out;
  for (int i = 0; i < e.rank; ++i) {
    if (i == e.kept) out.kept = out.rank;
    if (e.size[i] == 1) continue;
    const int last = out.rank - 1;
    bool joins = last >= (i < e.kept ? 0 : out.kept);
    for (int k = 0; k < kOperands; ++k)
      joins = joins && out.stride[k][last] == e.stride[k][i] * e.size[i];
    const int at = joins ? last : out.rank++;
    out.size[at] = joins ? out.size[at] * e.size[i] : e.size[i];
    for (int k = 0; k < kOperands; ++k) out.stride[k][at] = e.stride[k][i];
  }
  if (e.kept == e.rank) out.kept = out.rank;
  return out;
}

// d PSNR / d a = -20 / ln(base) * (a - b) / squared error; this is all but (a - b).
struct CoefficientScale {
  Scale scale;
  double elements;
  double share;  // of a result in what the gradient arrives for

  // Where the operands are identical PSNR is infinite and nothing changes it: no gradient.
  SYNCFREE_HD double operator()(double psnr, double gradient) const {
    const double mean = exp(scale.log_range_squared - psnr / scale.per_neper);
    return mean == 0.0 ? 0.0 : -2.0 * scale.per_neper * share * gradient / (mean * elements);
  }
};

inline CoefficientScale coefficient_scale(const BackwardProblem& problem) {
  const bool mean = problem.reduction == Reduction::kMean;
  return {make_scale(problem.range.width(), problem.base),
          static_cast<double>(problem.elements.reduced()),
          mean ? 1.0 / static_cast<double>(problem.elements.results()) : 1.0};
}

void run(const BackwardProblem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const BackwardProblem& problem);
cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::psnr
