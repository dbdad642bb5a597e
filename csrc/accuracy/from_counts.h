// Accuracy from what was counted: TorchMetrics' reduction of tp, fp, tn and fn.
#pragma once

#include <cstdint>

#include "accuracy/accuracy.h"

namespace syncfree::accuracy {

struct Reduction {
  Task task = Task::kMulticlass;
  Average average = Average::kMicro;
  bool top_one = true;  // top_k is 1

  // Counts (groups, classes). There is a value for each group or, for binary counts and without
  // average, for each count.
  const std::int64_t* data[kCountKinds] = {};
  std::int64_t group_stride[kCountKinds] = {};
  std::int64_t class_stride[kCountKinds] = {};
  std::int64_t groups = 1;
  std::int64_t classes = 1;

  const std::int64_t* bad = nullptr;  // the values are NaN where this number is above zero
  float* value = nullptr;
};

void run(const Reduction& reduction, ParallelFor parallel_for);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Reduction& reduction);
cudaError_t launch(const Reduction& reduction, const Workspace& workspace, cudaStream_t stream);
#endif

}  // namespace syncfree::accuracy
