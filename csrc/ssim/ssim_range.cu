// DataRange::kData: the larger of the two tensors' max - min, and the constants that follow.
#include <cub/block/block_reduce.cuh>

#include <algorithm>
#include <cmath>

#include "core/last_block.cuh"
#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 8;
constexpr std::int64_t kPiece = kThreads * kUnroll;  // elements of one block's step
constexpr int kRank = kMaxRank;

// The elements of a tensor, in any order and in as few dimensions as its layout allows.
struct Elements {
  const void* data;
  DType dtype;
  std::int64_t count;
  int rank;
  std::int64_t size[kRank];
  std::int64_t stride[kRank];
};

Elements make_elements(const TensorView& view) {
  Elements e{view.data, view.dtype, 1, 0, {}, {}};
  int order[kRank];
  int rank = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (view.size[i] == 1 || view.stride[i] == 0) continue;  // repeats add nothing
    int at = rank++;
    for (; at > 0 && view.stride[order[at - 1]] < view.stride[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  for (int k = 0; k < rank; ++k) {
    const std::int64_t size = view.size[order[k]], stride = view.stride[order[k]];
    e.count *= size;
    if (e.rank > 0 && e.stride[e.rank - 1] == stride * size) {
      e.size[e.rank - 1] *= size;
      e.stride[e.rank - 1] = stride;
    } else {
      e.size[e.rank] = size;
      e.stride[e.rank++] = stride;
    }
  }
  if (e.rank == 0) e.rank = e.size[0] = e.stride[0] = 1;
  return e;
}

struct Extremes {
  double low;
  double high;
  bool has_nan;

  __device__ static Extremes none() { return {INFINITY, -INFINITY, false}; }
  // CUB asks for an operator that joins two values; any value can serve as it.
  __device__ Extremes operator()(const Extremes& a, const Extremes& b) const {
    return {fmin(a.low, b.low), fmax(a.high, b.high), a.has_nan || b.has_nan};
  }
  // NaN if there is one, like torch.max and torch.min.
  __device__ double range() const { return has_nan ? NAN : high - low; }
};

__device__ std::int64_t offset_of(const Elements& e, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = e.rank - 1; d > 0; --d) {
    const std::int64_t next = index / e.size[d];
    offset += (index - next * e.size[d]) * e.stride[d];
    index = next;
  }
  return offset + index * e.stride[0];
}

template <class T>
__device__ Extremes extremes_as(const Elements& e) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* data = static_cast<const T*>(e.data);
  Acc low = INFINITY, high = -INFINITY;
  bool has_nan = false;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kPiece;
  for (std::int64_t base = blockIdx.x * kPiece + threadIdx.x; base < e.count; base += step) {
    Acc x[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      // Past the end the last element is loaded again, so that all loads stay independent of each
      // other.
      const std::int64_t index = min(base + k * kThreads, e.count - 1);
      x[k] = to<Acc>(data[e.rank == 1 ? index * e.stride[0] : offset_of(e, index)]);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      low = x[k] < low ? x[k] : low;
      high = x[k] > high ? x[k] : high;
      has_nan = has_nan || x[k] != x[k];
    }
  }
  return {static_cast<double>(low), static_cast<double>(high), has_nan};
}

__device__ Extremes extremes_of(const Elements& e) {
  switch (e.dtype) {
    case DType::kFloat64:
      return extremes_as<double>(e);
    case DType::kFloat16:
      return extremes_as<Half>(e);
    case DType::kBFloat16:
      return extremes_as<BFloat16>(e);
    case DType::kUInt8:
      return extremes_as<std::uint8_t>(e);
    default:
      return extremes_as<float>(e);
  }
}

// Valid in thread 0. May be called again without a barrier in between.
__device__ Extremes over_block(const Extremes& mine) {
  using Reduce = cub::BlockReduce<Extremes, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __syncthreads();
  return Reduce(storage).Reduce(mine, Extremes::none());
}

struct Operands {
  Elements of[2];
};

// `constants` has the type in which the images are computed.
__global__ void __launch_bounds__(kThreads)
    range_kernel(const __grid_constant__ Operands operands, double k1, double k2, double tap_sum,
                 Extremes* partial, std::uint32_t* ticket, bool in_double, void* constants) {
  for (int image = 0; image < 2; ++image) {
    const Extremes found = over_block(extremes_of(operands.of[image]));
    if (threadIdx.x == 0) partial[2 * blockIdx.x + image] = found;
  }
  if (!is_last_block(ticket, gridDim.x)) return;
  double range[2];
  for (int image = 0; image < 2; ++image) {
    Extremes mine = Extremes::none();
    for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads)
      mine = mine(mine, partial[2 * i + image]);
    range[image] = over_block(mine).range();
  }
  if (threadIdx.x != 0) return;
  const double larger = range[0] > range[1] || range[0] != range[0] ? range[0] : range[1];
  if (in_double)
    *static_cast<Constants<double>*>(constants) = make_constants<double>(larger, k1, k2, tap_sum);
  else
    *static_cast<Constants<float>*>(constants) = make_constants<float>(larger, k1, k2, tap_sum);
}

}  // namespace

std::size_t range_scratch_size() {
  return 2 * kRangeBlocks * sizeof(Extremes);
}

template <class Acc>
cudaError_t launch_range(const Problem& problem, double tap_sum, void* scratch,
                         std::uint32_t* ticket, Constants<Acc>* constants, cudaStream_t stream) {
  const Operands operands{{make_elements(problem.preds), make_elements(problem.target)}};
  const std::int64_t count = std::max(operands.of[0].count, operands.of[1].count);
  const unsigned blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>((count + kPiece - 1) / kPiece, 1, kRangeBlocks));
  range_kernel<<<blocks, kThreads, 0, stream>>>(operands, problem.k1, problem.k2, tap_sum,
                                                static_cast<Extremes*>(scratch), ticket,
                                                sizeof(Acc) == sizeof(double), constants);
  return cudaGetLastError();
}

template cudaError_t launch_range(const Problem&, double, void*, std::uint32_t*, Constants<float>*,
                                  cudaStream_t);
template cudaError_t launch_range(const Problem&, double, void*, std::uint32_t*, Constants<double>*,
                                  cudaStream_t);

}  // namespace syncfree::ssim
