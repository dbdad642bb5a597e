// Peak signal-to-noise ratio: what is computed, and the CPU and CUDA launchers.
//
// A result is the PSNR of all elements with the same index in the kept dimensions. Its elements, in
// logical order, are cut into chunks that are summed independently and then added up in order. On
// CUDA chunks are called pieces, and each large plane (the last two summed dimensions) is cut on
// its own. Within a chunk each run (CPU) or group (CUDA) of elements is summed in float before the
// sum continues in double.
#pragma once

#include <cstdint>

#include "core/data_range.h"
#include "core/parallel.h"
#include "core/reduction.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::psnr {

// The states of a metric class; their `data_range` replaces the width of Problem::range. Where all
// dimensions are summed over, `squared_error` and `total` have one element each, to which the batch
// is added. Without `total` the squared error of each result is written to `squared_error`.
struct States {
  void* squared_error = nullptr;
  DType squared_error_dtype = DType::kFloat32;
  void* total = nullptr;
  DType total_dtype = DType::kInt64;
  const void* data_range = nullptr;
  DType data_range_dtype = DType::kFloat32;
};

struct Problem {
  // Same sizes. The first `kept` dimensions index the results, the others are summed over.
  TensorView preds;
  TensorView target;
  int kept = 0;
  // plane_elements of the logical sizes that are summed over. CUDA cuts large planes one by one.
  std::int64_t plane = 0;

  DataRange range;  // kValue or kInterval
  double base = 10.0;
  Reduction reduction = Reduction::kMean;

  // One element, or one for each index of the kept dimensions with kNone.
  void* value = nullptr;
  bool wants_squared_error = false;  // instead of PSNR
  DType result_dtype = DType::kFloat32;

  States states;  // optional
};

// Float32 rounds whole numbers from 2^24 on, so that different images could become equal.
inline bool wants_double(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

// Elements of the last two dimensions longer than one.
inline std::int64_t plane_elements(const std::int64_t* size, int rank) {
  std::int64_t elements = 1;
  int left = 2;
  for (int d = rank - 1; d >= 0 && left > 0; --d) {
    elements *= size[d];
    left -= size[d] != 1;
  }
  return elements;
}

void run(const Problem& problem, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Problem& problem);
cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::psnr
