// The gradient of SSIM on CUDA: which path a problem takes, its memory, and the launch.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ssim/ssim_backward_job.cuh"

namespace syncfree::ssim {
namespace {

template <class Strided>
Strided make_image(const TensorView& view) {
  Strided image{view.data, view.dtype, {}};
  std::copy_n(view.stride, 5, image.stride);
  return image;
}

GradientImage make_gradient(const Gradient& gradient) {
  GradientImage image{gradient.data, gradient.layout.dtype, {}, make_image<Image>(gradient.pooled)};
  std::copy_n(gradient.layout.stride, 5, image.stride);
  return image;
}

// Scratch memory for a range that is found from the data: the constants that follow from it, and
// the memory that the search needs.
template <class Acc>
struct RangeScratch {
  Constants<Acc>* constants;
  void* search;

  static bool wanted(const BackwardProblem& problem) {
    return problem.forward.range.source == DataRange::Source::kData;
  }
  static std::size_t size(const BackwardProblem& problem) {
    if (!wanted(problem)) return 0;
    return aligned_to_workspace(sizeof(Constants<Acc>)) +
           aligned_to_workspace(range_scratch_size());
  }

  explicit RangeScratch(void* scratch)
      : constants(static_cast<Constants<Acc>*>(scratch)),
        search(static_cast<std::byte*>(scratch) + aligned_to_workspace(sizeof(Constants<Acc>))) {}
};

template <class Acc>
BackwardJob<Acc> make_job(const BackwardProblem& problem) {
  const Problem& images = problem.forward;
  BackwardJob<Acc> job;
  job.preds = make_image<Image>(images.preds);
  job.target = make_image<Image>(images.target);
  job.channels = images.preds.size[1];
  job.planes = images.preds.size[0] * job.channels;
  for (int axis = 0; axis < 3; ++axis) job.axes[axis] = backward_axis(images, axis);
  job.clamp = make_clamp<Acc>(images.range, images.preds.dtype, images.target.dtype);
  job.constants_in_memory = nullptr;
  job.grad_value = upstream(problem.grad_value, problem.constant_grad_value());
  job.grad_contrast = upstream(problem.grad_contrast);
  job.grad_squared_error = upstream(problem.grad_squared_error);
  job.grad_absolute_error =
      upstream(problem.grad_absolute_error, problem.constant_grad_absolute_error());
  job.grad_map = make_image<Image>(problem.grad_map);
  job.shares = window_shares(images);
  job.grad_preds = make_gradient(problem.preds);
  job.grad_target = make_gradient(problem.target);
  return job;
}

template <class Acc>
cudaError_t set_constants(const BackwardProblem& problem, const Workspace& workspace,
                          double tap_sum, BackwardJob<Acc>& job, cudaStream_t stream) {
  const Problem& images = problem.forward;
  if (images.range.source != DataRange::Source::kData) {
    job.constants = make_constants<Acc>(images.range.width(), images.k1, images.k2, tap_sum);
    return cudaSuccess;
  }
  const RangeScratch<Acc> scratch(workspace.scratch);
  job.constants_in_memory = scratch.constants;
  return launch_range(images, tap_sum, scratch.search,
                      static_cast<std::uint32_t*>(workspace.zeroed), scratch.constants, stream);
}

// Only where `launch_gives_loss` holds: all incoming gradients are constants, and the range is
// known and has an inverse that is a float.
WalkResults make_results(const BackwardProblem& problem, void* zeroed) {
  double windows = 1.0;
  for (int i = 0; i < 5; ++i) windows *= static_cast<double>(problem.forward.preds.size[i]);
  const int exponent = std::ilogb(problem.forward.range.width());
  return {static_cast<WalkTotals*>(zeroed),
          problem.loss,
          *problem.loss_weight,
          windows,
          std::ldexp(1.0f, -exponent),
          *problem.loss_weight != 1.0};
}

}  // namespace

bool launch_gives_loss(const BackwardProblem& problem) {
  const bool arrive = problem.grad_value.data != nullptr || problem.grad_contrast.data != nullptr ||
                      problem.grad_squared_error.data != nullptr ||
                      problem.grad_absolute_error.data != nullptr;
  const DataRange& range = problem.forward.range;
  return !arrive && problem.forward.reduction == Reduction::kMean &&
         range.source == DataRange::Source::kValue && range.width() >= 0x1p-100 &&
         range.width() <= 0x1p100 && problem.forward.axes[2].pad == kReach && walks_can(problem) &&
         walks_give_loss(make_job<float>(problem));
}

WorkspaceSize workspace_size(const BackwardProblem& problem) {
  using Range = RangeScratch<double>;
  WorkspaceSize size{Range::wanted(problem) ? sizeof(std::uint32_t) : 0, Range::size(problem)};
  if (problem.loss != nullptr) size.zeroed = sizeof(WalkTotals);
  if (!backward_strips_apply(problem)) size.scratch += backward_general_scratch(problem);
  return size;
}

cudaError_t launch(const BackwardProblem& problem, const Workspace& workspace,
                   cudaStream_t stream) {
  if (backward_strips_apply(problem)) {
    auto job = make_job<float>(problem);
    const bool gives_loss = problem.loss != nullptr && problem.loss_weight;
    const bool walks = gives_loss || backward_walks_apply(problem, job);
    const bool rings = walks && gradient_rings_apply(job);
    const double tap_sum = rings   ? gradient_ring_tap_sum()
                           : walks ? tap_sum_of(StripWindow::kGaussian)
                                   : 1.0;
    const cudaError_t error = set_constants(problem, workspace, tap_sum, job, stream);
    if (error != cudaSuccess) return error;
    const WalkResults results =
        gives_loss ? make_results(problem, workspace.zeroed) : WalkResults{};
    if (rings) return launch_gradient_rings(job, results, stream);
    if (gives_loss) return launch_backward_walks_with_loss(job, results, stream);
    if (walks) return launch_backward_walks(job, stream);
    return launch_backward_strips(job, problem.forward.axes[2], stream);
  }
  auto job = make_job<double>(problem);
  const cudaError_t error = set_constants(problem, workspace, 1.0, job, stream);
  if (error != cudaSuccess) return error;
  void* scratch = static_cast<std::byte*>(workspace.scratch) + RangeScratch<double>::size(problem);
  return launch_backward_general(problem, job, scratch, stream);
}

}  // namespace syncfree::ssim
