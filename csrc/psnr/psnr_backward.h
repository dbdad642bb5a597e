// The gradient of PSNR with respect to both operands: what is computed, and the CPU and CUDA
// launchers.
#pragma once

#include <algorithm>
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

// Tensors that are walked together: the four images, and the coefficients of the results, which are
// contiguous and have stride 0 in dimensions that were summed over.
enum Operand { kPreds, kTarget, kGradPreds, kGradTarget, kCoefficient, kOperands };

inline constexpr int kImages = kCoefficient;

// No torch tensor has more dimensions longer than one: elements are counted in 63 bits.
struct Elements {
  static constexpr int kMostDims = 64;

  int rank = 0;
  std::int64_t size[kMostDims] = {};
  std::int64_t stride[kOperands][kMostDims] = {};

  std::int64_t count() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
};

struct BackwardProblem {
  Elements elements;
  std::int64_t results = 1;
  const void* preds = nullptr;
  const void* target = nullptr;
  void* grad_preds = nullptr;  // null if not wanted
  void* grad_target = nullptr;
  DType dtype[kImages] = {};

  const double* squared_errors = nullptr;  // of each result
  TensorView grad_value;                   // contiguous over the results, or one element
  DataRange range;                         // its interval clamps both operands
  double base = 10.0;
  Reduction reduction = Reduction::kMean;

  bool in_double() const { return wants_double(dtype[kPreds]) || wants_double(dtype[kTarget]); }
};

// Sorts the dimensions into memory order, since elements have independent gradients, and merges
// them where the layouts of all operands allow it.
inline Elements in_order_of_memory(const Elements& e) {
  int order[Elements::kMostDims];
  for (int d = 0; d < e.rank; ++d) order[d] = d;
  const auto distance = [&](int d) {
    std::int64_t sum = 0;
    for (int k = 0; k < kImages; ++k) sum += e.stride[k][d];
    return sum;
  };
  std::stable_sort(order, order + e.rank, [&](int a, int b) { return distance(a) > distance(b); });
  Elements out;
  for (int i = 0; i < e.rank; ++i) {
    const int d = order[i], last = out.rank - 1;
    bool joins = last >= 0;
    for (int k = 0; k < kOperands; ++k)
      joins = joins && out.stride[k][last] == e.stride[k][d] * e.size[d];
    const int at = joins ? last : out.rank++;
    out.size[at] = joins ? out.size[at] * e.size[d] : e.size[d];
    for (int k = 0; k < kOperands; ++k) out.stride[k][at] = e.stride[k][d];
  }
  return out;
}

// d PSNR / d a = -20 / ln(base) * (a - b) / squared error; this is all but (a - b).
struct CoefficientScale {
  double factor;

  // Where the operands are identical PSNR is infinite, and the gradient is zero.
  SYNCFREE_HD double operator()(double squared_error, double gradient) const {
    return squared_error == 0.0 ? 0.0 : factor * gradient / squared_error;
  }
};

inline CoefficientScale coefficient_scale(const BackwardProblem& problem) {
  const bool mean = problem.reduction == Reduction::kMean;
  return {-20.0 / std::log(problem.base) / (mean ? static_cast<double>(problem.results) : 1.0)};
}

void run(const BackwardProblem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const BackwardProblem& problem);
cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::psnr
