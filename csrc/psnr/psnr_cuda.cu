// PSNR on CUDA: squared error, fixed-order sums, logarithm and reduction in one launch.
#include <algorithm>

#include "core/block_sum.cuh"
#include "core/device_info.h"
#include "core/last_block.cuh"
#include "core/store_as.h"
#include "psnr/psnr.h"
#include "psnr/psnr_math.h"
#include "psnr/psnr_sum.cuh"

namespace syncfree::psnr {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

// 64 registers a thread and 128 bytes of loads in flight each: 128 KB an SM, twice what HBM needs.
constexpr int kBlocksPerMultiprocessor = 4;

// Few enough that one block sums the partial results of a large image in about a microsecond.
constexpr std::int64_t kMostChunks = 2048;

// Below it a block a result would idle: a thread takes one instead.
constexpr std::int64_t kNarrow = 64;

struct Plan {
  Operands operands;
  bool narrow;
  bool pooled;
  Chunks chunks;  // of one result, or of the results when narrow
  std::int64_t blocks;
};

// Elements that a block sums in the accumulator type before it goes on in double.
template <class Loader>
inline constexpr std::int64_t kQuantum =
    static_cast<std::int64_t>(kThreads) * Loader::kVector * kUnroll;

struct Output {
  void* value;
  DType dtype;
  Reduction reduction;
  Scale scale;
  States states;

  __device__ double value_of(std::int64_t result, double squared_error, std::int64_t count) const {
    return psnr::value_of(result, squared_error, count, scale, states);
  }
  __device__ void store(std::int64_t index, double x) const { store_as(value, dtype, index, x); }
};

// The last block turns per-chunk sums into results. Each sum is taken in one fixed order: by the
// whole block for a pooled result, by one warp for each of several, whatever their number.
__device__ void finish_wide(const Operands& operands, const Chunks& chunks, bool pooled,
                            const Output& output, double* partial, double* values) {
  if (pooled) {
    double sum = 0.0;
    for (std::int64_t i = threadIdx.x; i < chunks.count; i += kThreads) sum += partial[i];
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) output.store(0, output.value_of(0, sum, operands.reduced));
    return;
  }
  const int lane = threadIdx.x % 32;
  const std::int64_t pending = chunks.count > 1 ? operands.results : 0;
  for (std::int64_t result = threadIdx.x / 32; result < pending; result += kThreads / 32) {
    double sum = 0.0;
    for (std::int64_t i = lane; i < chunks.count; i += 32)
      sum += partial[result * chunks.count + i];
    sum = warp_sum(sum);
    if (lane != 0) continue;
    const double value = output.value_of(result, sum, operands.reduced);
    if (output.reduction == Reduction::kNone)
      output.store(result, value);
    else
      values[result] = value;
  }
  if (output.reduction == Reduction::kNone) return;
  __syncthreads();
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < operands.results; i += kThreads) sum += values[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0)
    output.store(0, output.reduction == Reduction::kMean ? sum / operands.results : sum);
}

template <class Loader>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    wide_kernel(const __grid_constant__ Operands operands, Clamp<typename Loader::Acc> clamp,
                Chunks chunks, bool pooled, Output output, std::uint32_t* ticket, double* partial,
                double* values) {
  const std::int64_t total = operands.results * chunks.count;
  for (std::int64_t item = blockIdx.x; item < total; item += gridDim.x) {
    const std::int64_t result = item / chunks.count;
    const std::int64_t begin = (item - result * chunks.count) * chunks.elements;
    const std::int64_t end = min(begin + chunks.elements, operands.reduced);
    const Loader loader(operands, result);
    double sum = 0.0;
    for (std::int64_t base = begin; base < end; base += kQuantum<Loader>)
      sum += group_squared_error<Loader, kThreads, kUnroll>(loader, clamp, base, end);
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x != 0) continue;
    if (pooled || chunks.count > 1) {
      partial[item] = sum;
    } else if (output.reduction == Reduction::kNone) {
      output.store(result, output.value_of(result, sum, operands.reduced));
    } else {
      values[result] = output.value_of(result, sum, operands.reduced);
    }
  }
  if (is_last_block(ticket, gridDim.x))
    finish_wide(operands, chunks, pooled, output, partial, values);
}

template <class Acc>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    narrow_kernel(const __grid_constant__ Operands operands, Clamp<Acc> clamp, Chunks chunks,
                  Output output, std::uint32_t* ticket, double* partial) {
  for (std::int64_t chunk = blockIdx.x; chunk < chunks.count; chunk += gridDim.x) {
    const std::int64_t begin = chunk * chunks.elements;
    const std::int64_t end = min(begin + chunks.elements, operands.results);
    double sum = 0.0;
    for (std::int64_t result = begin + threadIdx.x; result < end; result += kThreads) {
      const StridedLoader<Acc, 1> loader(operands, result);
      double squared = 0.0;
      for (std::int64_t i = 0; i < operands.reduced; ++i)
        squared += loader.squared_error(i, 1, clamp);
      const double value = output.value_of(result, squared, operands.reduced);
      if (output.reduction == Reduction::kNone)
        output.store(result, value);
      else
        sum += value;
    }
    if (output.reduction == Reduction::kNone) continue;
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) partial[chunk] = sum;
  }
  if (output.reduction == Reduction::kNone) return;
  if (!is_last_block(ticket, gridDim.x)) return;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < chunks.count; i += kThreads) sum += partial[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0)
    output.store(0, output.reduction == Reduction::kMean ? sum / operands.results : sum);
}

// The loader for the operands' layout and types.
template <class F>
auto with_loader(const Operands& o, F&& f) {
  const bool same_type = o.preds.dtype == o.target.dtype;
  const auto choose = [&]<class T>(TypeTag<T>) {
    using Acc = typename ContiguousLoader<T>::Acc;
    return o.contiguous ? f(TypeTag<ContiguousLoader<T>>{})
                        : f(TypeTag<StridedLoader<Acc, kVectorOf<T>>>{});
  };
  if (same_type) {
    switch (o.preds.dtype) {
      case DType::kFloat32:
        return choose(TypeTag<float>{});
      case DType::kFloat64:
        return choose(TypeTag<double>{});
      case DType::kFloat16:
        return choose(TypeTag<Half>{});
      case DType::kBFloat16:
        return choose(TypeTag<BFloat16>{});
      case DType::kUInt8:
        return choose(TypeTag<std::uint8_t>{});
      default:
        break;
    }
  }
  if (o.preds.dtype == DType::kFloat64 || o.target.dtype == DType::kFloat64)
    return f(TypeTag<StridedLoader<double, kVectorOf<double>>>{});
  return f(TypeTag<StridedLoader<float, kVectorOf<float>>>{});
}

Plan make_plan(const Problem& problem) {
  Plan plan;
  plan.operands = make_operands(problem);
  plan.pooled = problem.kept == 0;
  plan.narrow = !plan.pooled && plan.operands.reduced <= kNarrow;
  std::int64_t items;
  if (plan.narrow) {
    plan.chunks = make_chunks(plan.operands.results, kThreads, kMostChunks);
    items = plan.chunks.count;
  } else {
    const std::int64_t quantum =
        with_loader(plan.operands, [](auto tag) { return kQuantum<typename decltype(tag)::type>; });
    plan.chunks = make_chunks(plan.operands.reduced, quantum, kMostChunks);
    items = plan.operands.results * plan.chunks.count;
  }
  plan.blocks = std::clamp<std::int64_t>(
      items, 1, kBlocksPerMultiprocessor * current_device_info().multiprocessors);
  return plan;
}

}  // namespace

WorkspaceSize workspace_size(const Problem& problem) {
  const Plan plan = make_plan(problem);
  const std::int64_t partial =
      plan.narrow ? plan.chunks.count : plan.operands.results * plan.chunks.count;
  const std::int64_t values = plan.narrow || plan.pooled ? 0 : plan.operands.results;
  return {sizeof(std::uint32_t), static_cast<std::size_t>(partial + values) * sizeof(double)};
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream) {
  const Plan plan = make_plan(problem);
  const double range = problem.range.source == DataRange::Source::kInterval
                           ? problem.range.high - problem.range.low
                           : problem.range.value;
  const Output output{problem.value, problem.result_dtype, problem.reduction,
                      make_scale(range, problem.base), problem.states};
  auto* ticket = static_cast<std::uint32_t*>(workspace.zeroed);
  auto* partial = static_cast<double*>(workspace.scratch);
  double* values = partial + plan.operands.results * plan.chunks.count;
  with_loader(plan.operands, [&](auto tag) {
    using Loader = typename decltype(tag)::type;
    using Acc = typename Loader::Acc;
    const auto clamp = make_clamp<Acc>(problem.range);
    if (plan.narrow)
      narrow_kernel<Acc><<<plan.blocks, kThreads, 0, stream>>>(plan.operands, clamp, plan.chunks,
                                                               output, ticket, partial);
    else
      wide_kernel<Loader><<<plan.blocks, kThreads, 0, stream>>>(
          plan.operands, clamp, plan.chunks, plan.pooled, output, ticket, partial, values);
  });
  return cudaGetLastError();
}

}  // namespace syncfree::psnr
