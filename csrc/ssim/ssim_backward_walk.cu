// Walk path of the gradient: which images take it. Kernels for gradients of errors are compiled in
// a file of their own, since each kernel takes a while to compile.
#include "ssim/ssim_backward_walk_launch.cuh"

namespace syncfree::ssim {

extern template cudaError_t launch_backward_walks_as<true>(const BackwardJob<float>&, cudaStream_t);

namespace {

bool has_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace

// Of the images that walks support, the shape alone decides, so that neither the batch nor the
// layout changes a bit of a gradient. Smaller images keep too few blocks busy, since each piece
// begins with 20 rows that complete no output.
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
