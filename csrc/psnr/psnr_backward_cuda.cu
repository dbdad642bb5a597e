// The gradient of PSNR on CUDA: a coefficient for each result, then one pass over the elements.
#include <algorithm>

#include "core/device_info.h"
#include "core/divide.h"
#include "core/store_as.h"
#include "psnr/psnr_backward.h"

namespace syncfree::psnr {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr std::int64_t kStep = static_cast<std::int64_t>(kThreads) * kUnroll;
constexpr int kBlocksPerMultiprocessor = 8;

struct Pointers {
  const void* preds;
  const void* target;
  void* grad_preds;
  void* grad_target;
  DType dtype[kImages];
};

struct OperandOffsets {
  std::int64_t of[kOperands];
};

__device__ OperandOffsets offsets_of(const Elements& e, std::int64_t index) {
  OperandOffsets offsets{};
  for (int d = e.rank - 1; d >= 0; --d) {
    const std::int64_t quotient = divide(index, e.size[d]);
    const std::int64_t coordinate = index - quotient * e.size[d];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets.of[k] += coordinate * e.stride[k][d];
    index = quotient;
  }
  return offsets;
}

template <class Acc>
__global__ void coefficients_kernel(const double* squared_errors, const void* gradient, DType dtype,
                                    bool one_gradient, CoefficientScale scale, std::int64_t results,
                                    Acc* coefficients) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < results;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    coefficients[i] = static_cast<Acc>(
        scale(squared_errors[i], load_as<double>(gradient, dtype, one_gradient ? 0 : i)));
}

// How elements are loaded. Typed<T>: both operands have the same floating type. AnyTypes: by a
// branch on the type for each element.
template <class T>
struct Typed {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

  __device__ static Acc load(const void* data, DType, std::int64_t index) {
    return to<Acc>(static_cast<const T*>(data)[index]);
  }
};

template <class A>
struct AnyTypes {
  using Acc = A;

  __device__ static Acc load(const void* data, DType dtype, std::int64_t index) {
    return load_as<Acc>(data, dtype, index);
  }
};

// Storing float32 by way of double would be slow on most GPUs.
template <class Acc>
__device__ void store(void* data, DType dtype, std::int64_t index, Acc x) {
  if (sizeof(Acc) == 4 && dtype == DType::kFloat32)
    static_cast<float*>(data)[index] = static_cast<float>(x);
  else
    store_as(data, dtype, index, static_cast<double>(x));
}

// kFlat: all images are contiguous in the same order, as are the `reduced` elements of a result.
template <class Load, bool kFlat>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const __grid_constant__ Elements elements, Pointers p, std::int64_t count,
                    std::int64_t reduced, Clamp<typename Load::Acc> clamp,
                    const typename Load::Acc* coefficients) {
  using Acc = typename Load::Acc;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kStep;
  for (std::int64_t base = blockIdx.x * kStep + threadIdx.x; base < count; base += step) {
    Acc a[kUnroll], b[kUnroll];
    OperandOffsets offsets[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      // Past the end the last element is loaded again, which keeps the loads independent.
      const std::int64_t i = min(base + u * kThreads, count - 1);
      if (!kFlat) offsets[u] = offsets_of(elements, i);
      a[u] = Load::load(p.preds, p.dtype[kPreds], kFlat ? i : offsets[u].of[kPreds]);
      b[u] = Load::load(p.target, p.dtype[kTarget], kFlat ? i : offsets[u].of[kTarget]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = base + u * kThreads;
      if (i >= count) break;
      const std::int64_t result = kFlat ? divide(i, reduced) : offsets[u].of[kCoefficient];
      const Acc gradient = coefficients[result] * (clamp(a[u]) - clamp(b[u]));
      if (p.grad_preds != nullptr)
        store(p.grad_preds, p.dtype[kGradPreds], kFlat ? i : offsets[u].of[kGradPreds],
              clamp.passes(a[u]) ? gradient : Acc(0));
      if (p.grad_target != nullptr)
        store(p.grad_target, p.dtype[kGradTarget], kFlat ? i : offsets[u].of[kGradTarget],
              clamp.passes(b[u]) ? -gradient : Acc(0));
    }
  }
}

// How many elements a result has, if they are adjacent in all images and results follow each other
// in order; else 0.
std::int64_t elements_of_flat_results(const Elements& e) {
  std::int64_t expected = 1, reduced = 1, results = 1;
  for (int d = e.rank - 1; d >= 0; --d) {
    for (int k = 0; k < kImages; ++k)
      if (e.stride[k][d] != expected) return 0;
    expected *= e.size[d];
    const std::int64_t step = e.stride[kCoefficient][d];
    if (step == 0 && results == 1) {
      reduced *= e.size[d];
    } else {
      if (step != results) return 0;
      results *= e.size[d];
    }
  }
  return reduced;
}

unsigned grid_for(std::int64_t items, std::int64_t per_block) {
  const std::int64_t most = kBlocksPerMultiprocessor * current_device_info().multiprocessors;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((items + per_block - 1) / per_block, 1, most));
}

template <class Load>
void launch_as(const BackwardProblem& problem, void* scratch, cudaStream_t stream) {
  using Acc = typename Load::Acc;
  const Elements elements = in_order_of_memory(problem.elements);
  Acc* coefficients = static_cast<Acc*>(scratch);
  const TensorView& gradient = problem.grad_value;
  coefficients_kernel<<<grid_for(problem.results, kThreads), kThreads, 0, stream>>>(
      problem.squared_errors, gradient.data, gradient.dtype, gradient.numel() == 1,
      coefficient_scale(problem), problem.results, coefficients);
  Pointers pointers{problem.preds, problem.target, problem.grad_preds, problem.grad_target, {}};
  std::copy_n(problem.dtype, kImages, pointers.dtype);
  const std::int64_t count = elements.count(), reduced = elements_of_flat_results(elements);
  const auto kernel = reduced > 0 ? gradient_kernel<Load, true> : gradient_kernel<Load, false>;
  kernel<<<grid_for(count, kStep), kThreads, 0, stream>>>(
      elements, pointers, count, reduced,
      make_clamp<Acc>(problem.range, problem.dtype[kPreds], problem.dtype[kTarget]), coefficients);
}

}  // namespace

WorkspaceSize workspace_size(const BackwardProblem& problem) {
  return {0, static_cast<std::size_t>(problem.results) * sizeof(double)};
}

cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace,
                   cudaStream_t stream) {
  const DType dtype = problem.dtype[kPreds];
  const bool same_type = dtype == problem.dtype[kTarget];
  const auto start = [&]<class Load>(TypeTag<Load>) {
    launch_as<Load>(problem, workspace.scratch, stream);
  };
  if (same_type && dtype == DType::kFloat32)
    start(TypeTag<Typed<float>>{});
  else if (same_type && dtype == DType::kFloat16)
    start(TypeTag<Typed<Half>>{});
  else if (same_type && dtype == DType::kBFloat16)
    start(TypeTag<Typed<BFloat16>>{});
  else if (problem.in_double())
    start(TypeTag<AnyTypes<double>>{});
  else
    start(TypeTag<AnyTypes<float>>{});
  return cudaGetLastError();
}

}  // namespace syncfree::psnr
