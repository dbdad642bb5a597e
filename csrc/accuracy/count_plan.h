// Which kernel counts for a problem, on what grid, with how much workspace.
#pragma once

#include "accuracy/count_job.cuh"

namespace syncfree::accuracy {

enum class Kernel {
  kStagedRows,
  kRankRows,
  kArgmaxRows,
  kClassStrided,
  kLabelCounts,
  kElementFractions,
  kLineFraction,
  kSampleFractions
};

struct Plan {
  CountJob job;
  Kernel kernel = Kernel::kElementFractions;
  std::int64_t score_totals = 0;
  std::int64_t group_totals = 0;
  std::int64_t element_totals = 0;
  std::int64_t class_totals = 0;
};

// On the current device.
Plan make_plan(const Problem& problem);

}  // namespace syncfree::accuracy
