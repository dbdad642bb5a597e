// Replaces the CPU kernels: their entry points launch the CUDA kernels, with a workspace that is
// checked afterwards.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "accuracy/accuracy.h"
#include "accuracy/from_counts.h"
#include "block.h"
#include "image_quality/image_quality.h"
#include "ms_ssim/ms_ssim.h"
#include "ms_ssim/ms_ssim_backward.h"
#include "psnr/from_errors.h"
#include "psnr/psnr.h"
#include "psnr/psnr_backward.h"
#include "safe_divide/safe_divide.h"
#include "scale/scale.h"
#include "ssim/ssim.h"
#include "ssim/ssim_backward.h"

namespace syncfree {
namespace {

template <class Problem, class Launch>
void launch_checked(const Problem& problem, Launch&& launch) {
  const WorkspaceSize size = workspace_size(problem);
  const cuda_on_cpu::GuardedBytes zeroed(size.zeroed, 0), scratch(size.scratch, 0xFD);
  const cudaError_t status = launch(Workspace{zeroed.data(), scratch.data()});
  const auto require = [](bool met, const char* what) {
    if (!met) throw std::runtime_error(std::string("CUDA on CPU: ") + what);
  };
  require(status == cudaSuccess, "a launcher returned an error");
  require(std::all_of(zeroed.data(), zeroed.data() + zeroed.size(),
                      [](auto byte) { return byte == 0; }),
          "a kernel left the zeroed part of its workspace dirty");
  require(!zeroed.overrun(), "a write beyond the zeroed part of the workspace");
  require(!scratch.overrun(), "a write beyond the scratch part of the workspace");
}

template <class Problem>
void run_launched(const Problem& problem) {
  launch_checked(problem,
                 [&](const Workspace& workspace) { return launch(problem, workspace, nullptr); });
}

}  // namespace

namespace accuracy {

void run(const Problem& problem, ParallelFor, ErrorRecord* error) {
  ErrorSlot slot;
  launch_checked(problem, [&](const Workspace& workspace) {
    return launch(problem, workspace, error != nullptr ? &slot : nullptr, nullptr);
  });
  if (error != nullptr && slot.published != slot.taken) *error = slot.record;
}

void run(const Reduction& reduction, ParallelFor) {
  run_launched(reduction);
}

}  // namespace accuracy

void image_quality::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}
void ms_ssim::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}
void ms_ssim::run(const BackwardProblem& problem, ParallelFor) {
  run_launched(problem);
}
void psnr::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}
void psnr::run(const BackwardProblem& problem, ParallelFor) {
  run_launched(problem);
}
void psnr::run(const ErrorSums& sums, ParallelFor) {
  run_launched(sums);
}
void safe_divide::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}
void ssim::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}
void ssim::run(const BackwardProblem& problem, ParallelFor) {
  run_launched(problem);
}
bool ssim::run_gives_loss(const BackwardProblem& problem) {
  return launch_gives_loss(problem);
}
void scale::run(const Problem& problem, ParallelFor) {
  run_launched(problem);
}

}  // namespace syncfree
