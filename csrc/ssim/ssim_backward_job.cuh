// The parameters of the gradient's CUDA kernels, and the launchers that ssim_backward_cuda.cu
// chooses from.
//
// The kernels have these terms in common:
// - Terms: what each window passes back to the pixels under it, a level and a slope for s and for d
//   (ssim_backward_terms.h).
// - Pivot: a value that is subtracted from pixels before their moments are taken, so that these
//   keep their digits. Moments, sums and levels are relative to (about) a pivot. A pair of rows is
//   plain if it needs no pivot but zero. The level of a strip or of rows, unlike that of a window,
//   is their mean value.
// - Strip: a range of columns of a plane, down which a warp or a block walks. It is divided into
//   units of a few rows. A piece is the rows of one strip that a warp or a block processes in one
//   go; each piece recomputes the halo above and below it.
// - Window sums (walk and ring path): sums with taps that are scaled so that the end taps are 1.
#pragma once

#include "core/store_as.h"
#include "ssim/ssim_backward_math.h"
#include "ssim/ssim_general_sums.cuh"
#include "ssim/ssim_job.cuh"
#include "ssim/ssim_terms.cuh"

namespace syncfree::ssim {

#include "ssim/ssim_backward_terms.h"

// Strides in elements, in the order (B, C, D, H, W); `data` is null if the gradient is not wanted.
struct GradientImage {
  void* data;
  DType dtype;
  std::int64_t stride[5];
  Image pooled;  // the gradient of the half-size image; data may be null

  // float32 without the detour through double, which is slow on most GPUs.
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

// For one image: the weights of its squared and absolute errors in the gradient of each pixel.
template <class Acc>
struct alignas(2 * sizeof(Acc)) ErrorWeights {
  Acc squared;
  Acc absolute;

  ErrorWeights() = default;
  __device__ ErrorWeights(const BackwardJob<Acc>& job, std::int64_t image)
      : squared(static_cast<Acc>(2.0 * job.grad_squared_error.of(image))),
        absolute(static_cast<Acc>(job.grad_absolute_error.of(image))) {}

  // From the difference between the two images at a pixel.
  __device__ Acc by_difference(Acc difference) const {
    const Acc sign = difference > 0 ? Acc(1) : (difference < 0 ? Acc(-1) : Acc(0));
    return squared * difference + absolute * sign;
  }
};

// For one image: the weights of each window's value and contrast, and of each pixel's errors.
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

// How far the default window reaches on either side of its middle.
inline constexpr int kReach = 5;

// The planes of terms. The gradient of a pixel of s or d is the sum, over the windows around it, of
// tap * (level + slope * (pixel - pivot)).
enum TermPlane { kLevelS, kSlopeS, kLevelD, kSlopeD, kTermPlanes };

// Walk path, the fastest for large images: gradients of values, contrast and errors for the
// 11 x 11 Gaussian of sigma 1.5 over 2-D images of one type, computed in float. `walks_can` tells
// whether walks support the problem, and `backward_walks_apply` whether walks or rings take it.
bool walks_can(const BackwardProblem& problem);
bool backward_walks_apply(const BackwardProblem& problem, const BackwardJob<float>& job);
cudaError_t launch_backward_walks(const BackwardJob<float>& job, cudaStream_t stream);

// A sum in two parts whose bits do not depend on the order of its additions: see `split` and
// `add_in_any_order`.
struct ExactSum {
  double high;
  double low;
};

// The sums of a loss, which walks and rings can compute along with its gradients.
struct WalkTotals {
  ExactSum deficit;
  ExactSum absolute_error;  // times WalkResults::scale
  std::uint32_t ticket;
};

struct WalkResults {
  WalkTotals* totals;  // zero between launches; null where no loss is wanted
  float* loss;
  double weight;     // of 1 - SSIM; 1 - weight is that of the mean absolute error
  double windows;    // in the batch, as many as its pixels
  float scale;       // a power of two near 1 / range
  bool wants_error;  // its weight is not zero, so that a gradient arrives for it
};

bool walks_give_loss(const BackwardJob<float>& job);
cudaError_t launch_backward_walks_with_loss(const BackwardJob<float>& job,
                                            const WalkResults& results, cudaStream_t stream);

// Ring path: faster than walks where it applies, with or without a loss. It keeps the last rows of
// sums in shared memory. Its taps differ, so its window sums have a tap sum of their own
// (`gradient_ring_tap_sum`).
bool gradient_rings_apply(const BackwardJob<float>& job);
double gradient_ring_tap_sum();
cudaError_t launch_gradient_rings(const BackwardJob<float>& job, const WalkResults& results,
                                  cudaStream_t stream);

// Strip path: the same window for images of any size, with all that may arrive.
bool backward_strips_apply(const BackwardProblem& problem);
cudaError_t launch_backward_strips(const BackwardJob<float>& job, const Axis& axis,
                                   cudaStream_t stream);

// General path: any window, 2-D and 3-D, any types, computed in double.
std::size_t backward_general_scratch(const BackwardProblem& problem);
cudaError_t launch_backward_general(const BackwardProblem& problem, const BackwardJob<double>& job,
                                    void* scratch, cudaStream_t stream);

}  // namespace syncfree::ssim
