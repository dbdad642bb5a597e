// Hands counts over: adds them to a metric's states, or writes those of samples.
#pragma once

#include "accuracy/count_job.cuh"

namespace syncfree::accuracy {

// Called by one thread for each place. `index`: of the class or label, counted over all samples.
__device__ inline void hand_over(const CountJob& job, std::int64_t index, unsigned long long tp,
                                 unsigned long long fp, unsigned long long tn,
                                 unsigned long long fn) {
  const unsigned long long counts[kCountKinds] = {tp, fp, tn, fn};
#pragma unroll
  for (int kind = 0; kind < kCountKinds; ++kind) {
    auto* place = reinterpret_cast<unsigned long long*>(job.counts.data[kind] +
                                                        index * job.counts.stride[kind]);
    if (!job.counts_are_added)
      *place = counts[kind];
    else if (counts[kind] != 0)
      atomicAdd(place, counts[kind]);  // other streams may be adding to the same states
  }
}

// For all classes together: each wrong element is a false positive of one and a false negative of
// another. With an unknown number of classes TorchMetrics takes it as 1, and `tn` goes below zero.
__device__ inline void hand_over_pooled(const CountJob& job, std::int64_t group,
                                        unsigned long long correct, unsigned long long valid) {
  const unsigned long long wrong = valid - correct;
  const auto classes = static_cast<unsigned long long>(job.pooled_classes);
  hand_over(job, group, correct, wrong, classes * valid - correct - 2 * wrong, wrong);
}

__device__ inline void hand_over_elements(const CountJob& job, std::int64_t group,
                                          unsigned long long hits, unsigned long long correct,
                                          unsigned long long valid, unsigned long long positive) {
  if (!job.counts_elements) {
    hand_over_pooled(job, group, correct, valid);
    return;
  }
  const unsigned long long rejections = correct - hits;
  hand_over(job, group, hits, valid - positive - rejections, rejections, positive - hits);
}

}  // namespace syncfree::accuracy
