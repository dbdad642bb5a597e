// The reduction of counts on the GPU, in one launch.
#include <algorithm>

#include "accuracy/element_judge.cuh"
#include "accuracy/from_counts_math.h"
#include "core/last_block.cuh"

namespace syncfree::accuracy {

__device__ inline WeightedSum shuffled(const WeightedSum& sum, int offset) {
  const auto other = [offset](std::uint64_t number) -> std::uint64_t {
    return shuffled(static_cast<unsigned long long>(number), offset);
  };
  return {other(sum.whole), other(sum.rest), other(sum.weight)};
}

namespace {

constexpr int kThreads = kElementThreads;
constexpr std::int64_t kMostBlocks = 1024;

// In Workspace::zeroed.
struct Totals {
  unsigned long long whole;
  unsigned long long rest;
  unsigned long long weight;
  unsigned int ticket;
};

__device__ void store(const Reduction& reduction, std::int64_t i, float value) {
  const bool bad = reduction.bad != nullptr && *reduction.bad > 0;
  reduction.value[i] = bad ? __int_as_float(0x7fffffff) : value;
}

__global__ void __launch_bounds__(kThreads)
    reduce_classes(const __grid_constant__ Reduction reduction) {
  const std::int64_t values = reduction.groups * reduction.classes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < values;
       i += step) {
    const std::int64_t group = divide(i, reduction.classes);
    store(reduction, i, value_of_class(reduction, group, i - group * reduction.classes));
  }
}

// A team of lanes, at most a block, for each group.
__global__ void __launch_bounds__(kThreads)
    reduce_groups(const __grid_constant__ Reduction reduction, int lanes) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t group = divide(thread, lanes);
  const std::int64_t lane = thread - group * lanes;
  WeightedSum sum;
  if (group < reduction.groups)
    for (std::int64_t c = lane; c < reduction.classes; c += lanes) sum.add(reduction, group, c);
  sum = sum_over_team(sum, lanes);
  if (lane == 0 && group < reduction.groups) store(reduction, group, sum.mean(reduction));
}

// All blocks for the only group.
__global__ void __launch_bounds__(kThreads)
    reduce_one(const __grid_constant__ Reduction reduction, Totals* totals) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  WeightedSum sum;
  for (std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       c < reduction.classes; c += step)
    sum.add(reduction, 0, c);
  sum = sum_over_team(sum, kThreads);
  if (threadIdx.x == 0) {
    atomicAdd(&totals->whole, static_cast<unsigned long long>(sum.whole));
    atomicAdd(&totals->rest, static_cast<unsigned long long>(sum.rest));
    atomicAdd(&totals->weight, static_cast<unsigned long long>(sum.weight));
  }
  if (!is_last_block(&totals->ticket, gridDim.x) || threadIdx.x != 0) return;
  sum = {atomicExch(&totals->whole, 0ull), atomicExch(&totals->rest, 0ull),
         atomicExch(&totals->weight, 0ull)};
  store(reduction, 0, sum.mean(reduction));
}

// For the only group; one block does it all where there are few classes.
bool takes_several_blocks(const Reduction& reduction) {
  return !has_values_of_classes(reduction) && reduction.groups == 1 &&
         reduction.classes > 4 * kThreads;
}

std::int64_t blocks_for(std::int64_t threads) {
  return (threads + kThreads - 1) / kThreads;
}

}  // namespace

WorkspaceSize workspace_size(const Reduction& reduction) {
  WorkspaceSize size;
  if (takes_several_blocks(reduction)) size.zeroed = sizeof(Totals);
  return size;
}

cudaError_t launch(const Reduction& reduction, const Workspace& workspace, cudaStream_t stream) {
  if (has_values_of_classes(reduction)) {
    const auto blocks = static_cast<unsigned int>(
        std::min(blocks_for(reduction.groups * reduction.classes), kMostBlocks));
    reduce_classes<<<blocks, kThreads, 0, stream>>>(reduction);
  } else if (takes_several_blocks(reduction)) {
    const auto blocks =
        static_cast<unsigned int>(std::min(blocks_for(reduction.classes), kMostBlocks));
    reduce_one<<<blocks, kThreads, 0, stream>>>(reduction, static_cast<Totals*>(workspace.zeroed));
  } else {
    int lanes = 1;
    while (lanes < 32 && lanes < reduction.classes) lanes *= 2;
    if (reduction.classes > 4 * 32) lanes = kThreads;
    const auto blocks = static_cast<unsigned int>(blocks_for(reduction.groups * lanes));
    reduce_groups<<<blocks, kThreads, 0, stream>>>(reduction, lanes);
  }
  return cudaGetLastError();
}

}  // namespace syncfree::accuracy
