// Runs one call on the device of its operands, with its memory and its threads or stream.
//
// A call's memory is what the problem itself needs, plus the workspace of its launches
// (core/workspace.h). Scratch memory is what the caller gives for both.
//
//   Execution execution(launch, *preds);
//   if (execution.prepare(0, execution.workspace_of(problem))) execution.execute(problem);
#pragma once

#include <cstddef>
#include <memory>

#include "api/arguments.h"
#include "core/parallel.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <optional>

#include "core/kept_workspace.h"
#endif

namespace syncfree::api {

#if defined(SYNCFREE_WITH_CUDA)

void check_cuda(cudaError_t status);

// Makes a device current for the life of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

#endif

class Execution {
 public:
  // A null launch stands for the defaults.
  Execution(const syncfree_launch* launch, const syncfree_tensor& on);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  bool on_cuda() const { return device_index_ >= 0; }

  // The workspace that a problem needs on CUDA. Each wanted result must already have memory, if
  // only a placeholder, because the kernels' plan depends on which results are wanted.
  template <class Problem>
  WorkspaceSize workspace_of([[maybe_unused]] const Problem& problem) const {
#if defined(SYNCFREE_WITH_CUDA)
    if (on_cuda()) return workspace_size(problem).aligned();
#endif
    return {};
  }

  // Provides `bytes` of memory for the problem itself, and a workspace for its launches. Returns
  // false if the caller only asks how much that is (`scratch_needed`).
  bool prepare(std::size_t bytes, const WorkspaceSize& workspace);

  // The memory for the problem itself, aligned to 256 bytes.
  void* memory() const { return memory_; }

  template <class Problem>
  void execute(const Problem& problem) {
#if defined(SYNCFREE_WITH_CUDA)
    if (on_cuda()) return check_launch(launch(problem, workspace_, launch_.stream));
#endif
    run(problem, parallel_for());
  }

  ParallelFor parallel_for() const {
    return launch_.parallel_for != nullptr ? launch_.parallel_for : &run_serially;
  }
#if defined(SYNCFREE_WITH_CUDA)
  const Workspace& workspace() const { return workspace_; }
  cudaStream_t stream() const { return launch_.stream; }
  // Throws if the call's launches failed.
  void check_launch(cudaError_t launched) {
    kept_.note(launched);
    check_cuda(launched);
  }
#endif

 private:
  std::byte* take_given(std::size_t bytes);

  syncfree_launch launch_{};
  int device_index_ = -1;  // -1 for operands on the CPU
  void* memory_ = nullptr;
  std::unique_ptr<std::byte[]> host_memory_;
#if defined(SYNCFREE_WITH_CUDA)
  std::byte* take_from_pool(std::size_t bytes);
  void prepare_on_cuda(std::size_t bytes, const WorkspaceSize& workspace);

  std::optional<CurrentDevice> current_;
  Workspace workspace_;
  KeptWorkspace kept_;
  void* from_pool_ = nullptr;
#endif
};

}  // namespace syncfree::api
