// Scaling on CUDA.
#include <algorithm>

#include "core/device_info.h"
#include "core/store_as.h"
#include "scale/scale.h"

namespace syncfree::scale {
namespace {

constexpr int kThreads = 256;

__device__ void scale_part(const Elements& part, float factor) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(part.data) % sizeof(float4) == 0) {
    float4* const vectors = reinterpret_cast<float4*>(part.data);
    const std::int64_t count = part.count / 4;
#pragma unroll 4
    for (std::int64_t i = first; i < count; i += step) {
      const float4 x = vectors[i];
      vectors[i] = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
    }
    done = 4 * count;
  }
  for (std::int64_t i = done + first; i < part.count; i += step) part.data[i] *= factor;
}

__global__ void __launch_bounds__(kThreads) scale_kernel(const __grid_constant__ Problem problem) {
  const auto factor = load_as<float>(problem.factor, problem.factor_dtype, 0);
  if (factor == 1.0f) return;
  for (const Elements& part : problem.parts) scale_part(part, factor);
}

}  // namespace

cudaError_t launch(const Problem& problem, const Workspace&, cudaStream_t stream) {
  const std::int64_t most = std::max(problem.parts[0].count, problem.parts[1].count);
  if (most == 0) return cudaSuccess;
  constexpr std::int64_t kBlockElements = 16 * kThreads;
  const std::int64_t blocks =
      std::min<std::int64_t>((most + kBlockElements - 1) / kBlockElements,
                             std::int64_t{8} * current_device_info().multiprocessors);
  scale_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(problem);
  return cudaGetLastError();
}

}  // namespace syncfree::scale
