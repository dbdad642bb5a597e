// Gradients of values of large images: which these are. Those of errors beside them are compiled
// next to this file: each takes a while.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_backward_walks_as<true>(const BackwardJob<float>&, cudaStream_t);

namespace {

bool has_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace

// By the shape of the image alone: neither a batch nor a layout changes a bit of its gradient.
// Smaller images keep too few blocks busy, for each walk begins with 20 rows that give nothing.
bool backward_walks_apply(const BackwardProblem& problem, const BackwardJob<float>& job) {
  constexpr std::int64_t kLeastRows = 720, kLeastColumns = 1280;
  return walks_can(problem) && (gradient_rings_apply(job) || (job.axes[1].size >= kLeastRows &&
                                                              job.axes[2].size >= kLeastColumns));
}

bool walks_can(const BackwardProblem& problem) {
  const Problem& images = problem.forward;
  return backward_strips_apply(problem) && has_type(images.preds.dtype) &&
         images.preds.dtype == images.target.dtype &&
         images.range.source != DataRange::Source::kInterval && problem.grad_map.data == nullptr &&
         problem.preds.pooled.data == nullptr && problem.target.pooled.data == nullptr;
}

cudaError_t launch_backward_walks(const BackwardJob<float>& job, cudaStream_t stream) {
  const bool has_errors = job.grad_squared_error.arrives() || job.grad_absolute_error.arrives();
  return has_errors ? launch_backward_walks_as<true>(job, stream)
                    : launch_backward_walks_as<false>(job, stream);
}

}  // namespace syncfree::ssim
