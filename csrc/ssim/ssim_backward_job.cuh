// What the CUDA kernels of the gradient are told, and the launchers that ssim_backward_cuda.cu
// chooses from.
#pragma once

#include "core/store_as.h"
#include "ssim/ssim_backward_math.h"
#include "ssim/ssim_general_sums.cuh"
#include "ssim/ssim_job.cuh"
#include "ssim/ssim_terms.cuh"

namespace syncfree::ssim {

#include "ssim/ssim_backward_terms.h"

// Strides in elements, in the order (B, C, D, H, W); null data where it is not wanted.
struct GradientImage {
  void* data;
  DType dtype;
  std::int64_t stride[5];
  Image pooled;  // data may be null

  // The way of float32 through double would be slow on most GPUs.
  template <class Acc>
  __device__ void store(std::int64_t index, Acc x) const {
    if (sizeof(Acc) == 4 && dtype == DType::kFloat32)
      static_cast<float*>(data)[index] = static_cast<float>(x);
    else
      store_as(data, dtype, index, static_cast<double>(x));
  }
};

template <class Acc>
struct BackwardJob {
  Image preds;
  Image target;
  std::int64_t planes;
  std::int64_t channels;
  BackwardAxis axes[3];
  Clamp<Acc> clamp;
  Constants<Acc> constants;
  const Constants<Acc>* constants_in_memory;  // not null when the data range is found on the device

  Upstream grad_value;
  Upstream grad_contrast;
  Upstream grad_squared_error;
  Upstream grad_absolute_error;
  Image grad_map;  // data may be null
  WindowShares shares;

  GradientImage grad_preds;
  GradientImage grad_target;

  __device__ Constants<Acc> current_constants() const {
    return constants_in_memory != nullptr ? *constants_in_memory : constants;
  }
};

// Of one image: what reaches each of its pixels from the sums of errors.
template <class Acc>
struct alignas(2 * sizeof(Acc)) ErrorWeights {
  Acc squared;
  Acc absolute;

  ErrorWeights() = default;
  __device__ ErrorWeights(const BackwardJob<Acc>& job, std::int64_t image)
      : squared(static_cast<Acc>(2.0 * job.grad_squared_error.of(image))),
        absolute(static_cast<Acc>(job.grad_absolute_error.of(image))) {}

  // By the difference of a pixel in both images.
  __device__ Acc by_difference(Acc difference) const {
    const Acc sign = difference > 0 ? Acc(1) : (difference < 0 ? Acc(-1) : Acc(0));
    return squared * difference + absolute * sign;
  }
};

// And each of its windows.
template <class Acc>
struct ImageWeights {
  Acc value;
  Acc contrast;
  ErrorWeights<Acc> errors;

  __device__ ImageWeights(const BackwardJob<Acc>& job, std::int64_t image)
      : value(static_cast<Acc>(job.grad_value.of(image) * job.shares.value)),
        contrast(static_cast<Acc>(job.grad_contrast.of(image) * job.shares.contrast)),
        errors(job, image) {}

  __device__ Acc by_difference(Acc difference) const { return errors.by_difference(difference); }
};

template <class Strided>
__device__ std::int64_t plane_offset(const Strided& image, std::int64_t channels,
                                     std::int64_t plane) {
  const std::int64_t batch = plane / channels;
  return batch * image.stride[0] + (plane - batch * channels) * image.stride[1];
}

// Of the default window, on either side.
inline constexpr int kReach = 5;

// What windows pass back: a gradient of s or d is a sum of level + slope * (pixel - pivot).
enum TermPlane { kLevelS, kSlopeS, kLevelD, kSlopeD, kTermPlanes };

// Fast path for values and errors: 11 x 11 Gaussian of sigma 1.5 over 2-D images of one type,
// computed in float. Whether walks can find these gradients, and whether they are to, as they are
// the fastest way for large images.
bool walks_can(const BackwardProblem& problem);
bool backward_walks_apply(const BackwardProblem& problem, const BackwardJob<float>& job);
cudaError_t launch_backward_walks(const BackwardJob<float>& job, cudaStream_t stream);

// Sums of a loss, which walks may give along with its gradients. How numbers are split:
// add_in_any_order.
struct ExactSum {
  double high;
  double low;
};

struct WalkTotals {
  ExactSum deficit;
  ExactSum absolute_error;  // times WalkResults::scale
  std::uint32_t ticket;
};

struct WalkResults {
  WalkTotals* totals;  // zero between launches; null where no loss is wanted
  float* loss;
  double weight;     // of one minus SSIM; the rest is that of the mean absolute error
  double windows;    // of the batch, as many as its pixels
  float scale;       // a power of two about one over the range
  bool wants_error;  // where it weighs something, and so a gradient arrives for it
};

bool walks_give_loss(const BackwardJob<float>& job);
cudaError_t launch_backward_walks_with_loss(const BackwardJob<float>& job,
                                            const WalkResults& results, cudaStream_t stream);

// Both for those walks that rings do faster, whose waiting rows stand in shared memory. They take
// window sums of their own (`gradient_ring_tap_sum`).
bool gradient_rings_apply(const BackwardJob<float>& job);
double gradient_ring_tap_sum();
cudaError_t launch_gradient_rings(const BackwardJob<float>& job, const WalkResults& results,
                                  cudaStream_t stream);

// Fast path: the same for all images and results.
bool backward_strips_apply(const BackwardProblem& problem);
cudaError_t launch_backward_strips(const BackwardJob<float>& job, const Axis& axis,
                                   cudaStream_t stream);

// Any window, 2-D and 3-D, any types, computed in double.
std::size_t backward_general_scratch(const BackwardProblem& problem);
cudaError_t launch_backward_general(const BackwardProblem& problem, const BackwardJob<double>& job,
                                    void* scratch, cudaStream_t stream);

}  // namespace syncfree::ssim
