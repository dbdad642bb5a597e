// Labels on the device: batched reads, and the report of bad ones.
#pragma once

#include "accuracy/count_job.cuh"

namespace syncfree::accuracy {

// One branch on the type for all of them, so that their loads are in flight together.
template <int kCount>
SYNCFREE_HD void load_labels(const void* labels, DType dtype, const std::int64_t (&offsets)[kCount],
                             bool truncate, std::int64_t (&values)[kCount]) {
  dispatch_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T loaded[kCount];
    for (int i = 0; i < kCount; ++i) loaded[i] = static_cast<const T*>(labels)[offsets[i]];
    for (int i = 0; i < kCount; ++i) values[i] = label_of(loaded[i], truncate);
  });
}

__device__ __noinline__ inline void report_bad_label(const CountJob& job, std::int64_t group,
                                                     std::int64_t element, ErrorKind kind) {
  atomicAdd(&job.grid->bad_labels, 1ull);
  const std::uint64_t order = error_order(job.logical_index(group, element), kind);
  atomicMax(&job.grid->bad_first, static_cast<unsigned long long>(~order));
}

// Called by one thread once all other blocks' reports are visible. Returns whether any label was
// bad; if so, hands the report to the host and leaves the totals zero.
__device__ __noinline__ inline bool publish_bad_labels(const CountJob& job) {
  const unsigned long long count = __ldcg(&job.grid->bad_labels);
  if (count == 0) return false;
  const std::uint64_t order = ~static_cast<std::uint64_t>(__ldcg(&job.grid->bad_first));
  job.grid->bad_labels = 0;
  job.grid->bad_first = 0;
  if (job.counts.bad != nullptr)
    atomicAdd(reinterpret_cast<unsigned long long*>(job.counts.bad), count);
  if (job.error != nullptr) {
    const Offsets offsets = job.offsets_of(error_index(order));
    const std::int64_t label =
        error_kind(order) == ErrorKind::kPredsOutOfRange
            ? load_label(job.preds, job.preds_dtype, offsets.preds, job.rule.truncate)
            : load_label(job.target, job.target_dtype, offsets.target, job.rule.truncate_target);
    publish(job.error,
            error_record(job.rule, order, label, static_cast<std::int64_t>(count), job.call));
  }
  return true;
}

}  // namespace syncfree::accuracy
