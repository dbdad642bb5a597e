// Safe division on CUDA.
#include <algorithm>

#include "core/device_info.h"
#include "core/merge_dims.h"
#include "safe_divide/safe_divide.h"
#include "safe_divide/safe_divide_math.h"

namespace syncfree::safe_divide {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    divide_kernel(const __grid_constant__ Problem problem, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step)
    divide_element(problem, offsets_of(problem.num, problem.denom, i), i);
}

}  // namespace

cudaError_t launch(const Problem& given, const Workspace&, cudaStream_t stream) {
  Problem problem = given;
  merge_dims(problem.num, problem.denom, 0, problem.num.rank);
  const std::int64_t count = problem.num.numel();
  if (count == 0) return cudaSuccess;
  const std::int64_t blocks = std::min<std::int64_t>(
      (count + kThreads - 1) / kThreads, std::int64_t{8} * current_device_info().multiprocessors);
  divide_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(problem, count);
  return cudaGetLastError();
}

}  // namespace syncfree::safe_divide
