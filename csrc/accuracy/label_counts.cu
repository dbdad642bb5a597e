// Class counts from predicted labels: one increment for a right element, two for a wrong one.
#include "accuracy/launch_job.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kElements = 4;  // of a thread, in flight together
constexpr int kTile = kThreads * kElements;

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    count_labels(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kThreads> tally(job, counters);
  const std::int64_t units = job.group_count * job.blocks_per_group;

  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t group = divide(unit, job.blocks_per_group);
    const std::int64_t turn = unit - group * job.blocks_per_group;
    const Offsets base = job.groups(group);
    tally.open();
    for (std::int64_t tile = turn * kTile; tile < job.element_count;
         tile += static_cast<std::int64_t>(job.blocks_per_group) * kTile) {
      std::int64_t preds_at[kElements], target_at[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        // Past the end the last element is read again, but not judged.
        const std::int64_t element = min(tile + i * kThreads + threadIdx.x, job.element_count - 1);
        const Offsets at = job.elements(element);
        preds_at[i] = base.preds + at.preds;
        target_at[i] = base.target + at.target;
      }
      std::int64_t predicted[kElements], target[kElements];
      load_labels(job.preds, job.preds_dtype, preds_at, job.rule.truncate, predicted);
      load_labels(job.target, job.target_dtype, target_at, job.rule.truncate_target, target);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const std::int64_t element = tile + i * kThreads + threadIdx.x;
        if (element >= job.element_count || !tally.admit(group, element, target[i])) continue;
        if (job.rule.judge_prediction(predicted[i]) == LabelState::kValid) {
          tally.add(group, predicted[i] == target[i], target[i], predicted[i]);
        } else {
          tally.reject(group, element, ErrorKind::kPredsOutOfRange);
        }
      }
    }
    tally.close(group,
                [&] { return share_of(job.element_count, kTile, turn, job.blocks_per_group); });
  }
  finish_groups(job);
}

}  // namespace

cudaError_t launch_label_counts(const CountJob& job, cudaStream_t stream) {
  return launch_job(count_labels, kThreads, job.shared_bytes(), stream, job);
}

}  // namespace syncfree::accuracy
