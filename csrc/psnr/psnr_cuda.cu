// PSNR on CUDA: squared error, fixed-order sums, logarithm and reduction in one launch.
//
// In the wide kernel a block sums a piece of a result; in the narrow one, for results of few
// elements, a thread sums a whole result.
#include <algorithm>

#include "core/block_sum.cuh"
#include "core/device_info.h"
#include "core/early_launch.cuh"
#include "core/last_block.cuh"
#include "core/store_as.h"
#include "psnr/psnr.h"
#include "psnr/psnr_math.h"
#include "psnr/psnr_sum.cuh"

namespace syncfree::psnr {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

// Blocks of the narrow kernel per multiprocessor.
constexpr int kNarrowBlocks = 4;

// Few enough that one block sums the partial results of a large image in about a microsecond.
constexpr std::int64_t kMostChunks = 2048;

// For up to this many elements a block per result would idle: a thread takes one instead.
constexpr std::int64_t kNarrow = 64;

struct Plan {
  Operands operands;
  bool narrow;
  bool pooled;
  Pieces pieces;       // of each result
  Chunks chunks;       // of the results when narrow
  int pixel_channels;  // for PixelLoader, or 0
  std::int64_t blocks;
};

// A group: elements that a block sums in the accumulator type before it goes on in double.
template <class Loader>
inline constexpr int kQuantum = kThreads * Loader::kVector * kUnroll;

struct Output {
  void* value;
  DType dtype;
  Reduction reduction;
  Scale scale;
  States states;
  bool wants_squared_error;

  __device__ double value_of(std::int64_t result, double squared_error, std::int64_t count) const {
    if (wants_squared_error) return squared_error;
    return psnr::value_of(result, squared_error, count, scale, states);
  }
  __device__ void store(std::int64_t index, double x) const { store_as(value, dtype, index, x); }
};

// Adds up every `step`-th of `count` numbers from `first` on, in order. Only the last block does
// so, when all others have ended: to hide latency several loads are in flight together.
__device__ double sum_in_order(const double* numbers, std::int64_t first, std::int64_t count,
                               std::int64_t step) {
  constexpr int kInFlight = 8;
  double sum = 0.0;
  for (; first < count; first += kInFlight * step) {
    double x[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      x[k] = first + k * step < count ? numbers[first + k * step] : 0.0;
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) sum += x[k];
  }
  return sum;
}

// The last block turns the sums of pieces into results. Each sum is taken in one fixed order: by
// the whole block for a pooled result, by one warp for each of several, whatever their number.
__device__ void finish_wide(const Operands& operands, const Pieces& pieces, bool pooled,
                            const Output& output, double* partial, double* values) {
  if (pooled) {
    const double sum =
        block_sum<kThreads>(sum_in_order(partial, threadIdx.x, pieces.count, kThreads));
    if (threadIdx.x == 0) output.store(0, output.value_of(0, sum, operands.reduced));
    return;
  }
  const int lane = threadIdx.x % 32;
  const std::int64_t pending = pieces.count > 1 ? operands.results : 0;
  for (std::int64_t result = threadIdx.x / 32; result < pending; result += kThreads / 32) {
    const double sum =
        warp_sum(sum_in_order(partial + result * pieces.count, lane, pieces.count, 32));
    if (lane != 0) continue;
    const double value = output.value_of(result, sum, operands.reduced);
    if (output.reduction == Reduction::kNone)
      output.store(result, value);
    else
      values[result] = value;
  }
  if (output.reduction == Reduction::kNone) return;
  __syncthreads();
  const double sum =
      block_sum<kThreads>(sum_in_order(values, threadIdx.x, operands.results, kThreads));
  if (threadIdx.x == 0)
    output.store(0, output.reduction == Reduction::kMean ? sum / operands.results : sum);
}

template <class Loader>
__global__ void __launch_bounds__(kThreads, Loader::kBlocksPerMultiprocessor)
    wide_kernel(const __grid_constant__ Operands operands, Clamp<typename Loader::Acc> clamp,
                const __grid_constant__ Pieces pieces, bool pooled, Output output,
                std::uint32_t* ticket, double* partial, double* values) {
  wait_for_kernel_ahead();
  constexpr int kPlanes = Loader::kPlanes;
  const std::int64_t items = pieces.count / kPlanes;  // of a result: a piece of kPlanes planes
  for (std::int64_t item = blockIdx.x; item < operands.results * items; item += gridDim.x) {
    const std::int64_t result = item / items;
    const std::int64_t planes = (item - result * items) / pieces.of_plane * kPlanes;
    const std::int64_t piece = (item - result * items) % pieces.of_plane;
    const std::int64_t begin = piece * pieces.elements;
    const int count = static_cast<int>(min(pieces.elements, pieces.plane - begin));
    const Loader loader(operands, result, planes * pieces.plane + begin);
    double sum[kPlanes] = {};
    for (int base = 0; base < count; base += kQuantum<Loader>)
      add_group<kThreads, kUnroll>(loader, clamp, base, count, sum);
    // Pieces are stored plane by plane, as they are with one piece per item.
    const std::int64_t slot =
        kPlanes == 1 ? item : item + item / pieces.of_plane * (kPlanes - 1) * pieces.of_plane;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      const double total = block_sum<kThreads>(sum[p]);
      if (threadIdx.x != 0) continue;
      if (pooled || pieces.count > 1) {
        partial[slot + p * pieces.of_plane] = total;
      } else {
        const double value = output.value_of(item, total, operands.reduced);
        if (output.reduction == Reduction::kNone)
          output.store(item, value);
        else
          values[item] = value;
      }
    }
  }
  if (is_last_block(ticket, gridDim.x))
    finish_wide(operands, pieces, pooled, output, partial, values);
}

template <class Acc>
__global__ void __launch_bounds__(kThreads, kNarrowBlocks)
    narrow_kernel(const __grid_constant__ Operands operands, Clamp<Acc> clamp, Chunks chunks,
                  Output output, std::uint32_t* ticket, double* partial) {
  wait_for_kernel_ahead();
  for (std::int64_t chunk = blockIdx.x; chunk < chunks.count; chunk += gridDim.x) {
    const std::int64_t begin = chunk * chunks.elements;
    const std::int64_t end = min(begin + chunks.elements, operands.results);
    double sum = 0.0;
    for (std::int64_t result = begin + threadIdx.x; result < end; result += kThreads) {
      const MixedLoader<Acc, 1> loader(operands, result, 0);
      double squared = 0.0;
      for (std::int64_t i = 0; i < operands.reduced; ++i)
        squared += loader.squared_error(0, i, 1, clamp);
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
  const double sum =
      block_sum<kThreads>(sum_in_order(partial, threadIdx.x, chunks.count, kThreads));
  if (threadIdx.x == 0)
    output.store(0, output.reduction == Reduction::kMean ? sum / operands.results : sum);
}

// Calls f with the operands' type and true if a loader is made for it, otherwise with the type of
// the arithmetic and false.
template <class F>
auto with_type(const Operands& o, F&& f) {
  if (o.preds.dtype == o.target.dtype) {
    switch (o.preds.dtype) {
      case DType::kFloat32:
        return f(TypeTag<float>{}, std::true_type{});
      case DType::kFloat64:
        return f(TypeTag<double>{}, std::true_type{});
      case DType::kFloat16:
        return f(TypeTag<Half>{}, std::true_type{});
      case DType::kBFloat16:
        return f(TypeTag<BFloat16>{}, std::true_type{});
      case DType::kUInt8:
        return f(TypeTag<std::uint8_t>{}, std::true_type{});
      default:
        break;
    }
  }
  if (wants_double(o.preds.dtype) || wants_double(o.target.dtype))
    return f(TypeTag<double>{}, std::false_type{});
  return f(TypeTag<float>{}, std::false_type{});
}

// The loader for the operands' layout and types.
template <class F>
void with_loader(const Plan& plan, F&& f) {
  with_type(plan.operands, [&]<class T, class Same>(TypeTag<T>, Same) {
    if constexpr (!Same::value)
      f(TypeTag<MixedLoader<T, kVectorOf<T>>>{});
    else if (plan.operands.contiguous)
      f(TypeTag<ContiguousLoader<T>>{});
    else if (plan.pixel_channels == 3)
      f(TypeTag<PixelLoader<T, 3>>{});
    else if (plan.pixel_channels == 4)
      f(TypeTag<PixelLoader<T, 4>>{});
    else
      f(TypeTag<StridedLoader<T>>{});
  });
}

Plan make_plan(const Problem& problem) {
  Plan plan{};
  plan.operands = make_operands(problem);
  plan.pooled = problem.kept == 0;
  plan.narrow = !plan.pooled && plan.operands.reduced <= kNarrow;
  std::int64_t items = 0, blocks = kNarrowBlocks;
  if (plan.narrow) {
    plan.chunks = make_chunks(plan.operands.results, kThreads, kMostChunks);
    items = plan.chunks.count;
  } else {
    const std::int64_t vector = with_type(
        plan.operands, [](auto tag, auto) { return kVectorOf<typename decltype(tag)::type>; });
    plan.pieces = make_pieces(plan.operands.reduced, problem.plane, kThreads * vector * kUnroll,
                              vector, kMostChunks);
    plan.pixel_channels = interleaved_channels(plan.operands, plan.pieces);
    with_loader(plan, [&](auto tag) {
      using Loader = typename decltype(tag)::type;
      items = plan.operands.results * plan.pieces.count / Loader::kPlanes;
      blocks = Loader::kBlocksPerMultiprocessor;
    });
  }
  plan.blocks = std::clamp<std::int64_t>(items, 1, blocks * current_device_info().multiprocessors);
  return plan;
}

}  // namespace

WorkspaceSize workspace_size(const Problem& problem) {
  const Plan plan = make_plan(problem);
  const std::int64_t partial =
      plan.narrow ? plan.chunks.count : plan.operands.results * plan.pieces.count;
  const std::int64_t values = plan.narrow || plan.pooled ? 0 : plan.operands.results;
  return {sizeof(std::uint32_t), static_cast<std::size_t>(partial + values) * sizeof(double)};
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream) {
  const Plan plan = make_plan(problem);
  const Output output{problem.value,     problem.result_dtype,
                      problem.reduction, make_scale(problem.range.width(), problem.base),
                      problem.states,    problem.wants_squared_error};
  auto* ticket = static_cast<std::uint32_t*>(workspace.zeroed);
  auto* partial = static_cast<double*>(workspace.scratch);
  double* values = partial + plan.operands.results * plan.pieces.count;
  cudaError_t status = cudaSuccess;
  with_loader(plan, [&](auto tag) {
    using Loader = typename decltype(tag)::type;
    using Acc = typename Loader::Acc;
    const auto clamp = make_clamp<Acc>(problem.range, problem.preds.dtype, problem.target.dtype);
    status = plan.narrow ? launch_early(narrow_kernel<Acc>, plan.blocks, kThreads, 0, stream,
                                        plan.operands, clamp, plan.chunks, output, ticket, partial)
                         : launch_early(wide_kernel<Loader>, plan.blocks, kThreads, 0, stream,
                                        plan.operands, clamp, plan.pieces, plan.pooled, output,
                                        ticket, partial, values);
  });
  return status;
}

}  // namespace syncfree::psnr
