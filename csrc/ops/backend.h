// Runs a problem, the plain struct that says what a kernel computes, on the device that this
// library serves. The files of csrc/ops are compiled twice, into the CPU library and, with
// SYNCFREE_OPS_CUDA, into the CUDA library: same checks, same results, one source.
#pragma once

#include "ops/torch_abi.h"

#if defined(SYNCFREE_OPS_CUDA)
#include "ops/cuda_context.h"
#define SYNCFREE_DISPATCH_KEY CUDA
#else
#include <torch/csrc/stable/ops.h>

#include "core/parallel.h"
#define SYNCFREE_DISPATCH_KEY CPU
#endif

namespace syncfree::ops {

#if defined(SYNCFREE_OPS_CUDA)

template <class Problem>
void execute(const Problem& problem, const CudaContext& context) {
  auto workspace = context.workspace(workspace_size(problem));
  workspace.check(launch(problem, workspace.memory(), context.stream()));
}

// On the current stream of the tensor's device.
template <class Problem>
void execute(const Problem& problem, const Tensor& on) {
  execute(problem, CudaContext(on));
}

#else

// On torch's own thread pool, so that torch.set_num_threads applies.
inline void torch_parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                               void (*body)(std::int64_t, std::int64_t, void*), void* context) {
  torch::stable::parallel_for(begin, end, grain,
                              [&](std::int64_t b, std::int64_t e) { body(b, e, context); });
}

template <class Problem>
void execute(const Problem& problem, const Tensor&) {
  run(problem, &torch_parallel_for);
}

#endif

}  // namespace syncfree::ops
