// What the C interface and torch's ops do with a stream's memory when a launch fails, over the fake
// runtime of kept_workspace.cpp.
#define SYNCFREE_WITH_CUDA
#define SYNCFREE_OPS_CUDA
#include "kept_workspace.cpp"

#include "api/execution.cpp"
#include "ops/cuda_context.h"

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t) {
  return "failed";
}

const char* cudaGetErrorName(cudaError_t) {
  return "failed";
}

namespace syncfree {

cudaError_t know_device(int) {
  return cudaSuccess;
}

void ops::check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw status;
}

namespace {

// Its first kernel adds, its last one takes away, unless that cannot be launched.
struct Problem {
  bool is_launched;
  mutable bool had_zeros;
};

WorkspaceSize workspace_size(const Problem&) {
  return {256, 0};
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t) {
  auto* const byte = static_cast<unsigned char*>(workspace.zeroed);
  problem.had_zeros = *byte == 0;
  *byte = problem.is_launched ? 0 : 7;
  return problem.is_launched ? cudaSuccess : cudaErrorMemoryAllocation;
}

void run(const Problem&, ParallelFor) {}

}  // namespace
}  // namespace syncfree

extern "C" {

// Whether the call found zeros.
bool call_of_the_c_interface(bool is_launched) {
  syncfree_tensor on{};
  on.device_type = SYNCFREE_CUDA;
  const syncfree::Problem problem{is_launched, false};
  try {
    syncfree::api::Execution execution(nullptr, on);
    execution.prepare(0, execution.workspace_of(problem));
    execution.execute(problem);
  } catch (const syncfree::api::Failure&) {
  }
  return problem.had_zeros;
}

bool call_of_an_op(bool is_launched) {
  const syncfree::Problem problem{is_launched, false};
  try {
    syncfree::ops::LeasedWorkspace workspace;
    syncfree::lease_kept_workspace(0, nullptr, syncfree::workspace_size(problem), &workspace.kept);
    workspace.check(syncfree::launch(problem, workspace.memory(), nullptr));
  } catch (cudaError_t) {
  }
  return problem.had_zeros;
}
}
