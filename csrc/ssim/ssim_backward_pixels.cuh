// How the gradient kernels read pixels and write gradients: as aligned vectors, as single elements
// of one type, or as elements of any two types.
#pragma once

#include "ssim/ssim_backward_job.cuh"
#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

inline constexpr int kWalkColumns = 2;  // of one lane of a walk
inline constexpr int kPairRows = 2;     // pivots are chosen for two rows at a time

// Single elements of type T, which both images and their gradients have.
template <class T>
struct PixelsOf {
  using Element = T;
  static constexpr bool kAligned = false;

  __device__ static float load(const Image& image, std::int64_t index) {
    return to<float>(static_cast<const T*>(image.data)[index]);
  }
  __device__ static void store(const GradientImage& gradient, std::int64_t index, float x) {
    static_cast<T*>(gradient.data)[index] = rounded(x);
  }
  __device__ static T rounded(float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else if constexpr (std::is_same_v<T, Half>)
      return {__half_as_ushort(__float2half_rn(x))};
    else
      return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  }
};

// Aligned vectors: the images as VectorRows reads them, rows of both at the same offset, and
// `kCount` neighboring elements of the gradients.
template <class T, int kCount = kWalkColumns>
struct VectorPixelsOf : PixelsOf<T> {
  static constexpr bool kAligned = true;

  static bool apply(const BackwardJob<float>& job) {
    Geometry geometry{job.channels, {}, {}, {}};
    for (int axis = 0; axis < 3; ++axis) geometry.size[axis] = job.axes[axis].size;
    if (!VectorRows<T>::apply(job.preds, job.target, geometry)) return false;
    for (const GradientImage* gradient : {&job.grad_preds, &job.grad_target}) {
      if (gradient->data == nullptr) continue;
      // Kernels compute offsets of rows within a plane in 32 bits.
      if (gradient->stride[4] != 1 || geometry.size[1] * gradient->stride[3] > INT32_MAX ||
          reinterpret_cast<std::uintptr_t>(gradient->data) % (kCount * sizeof(T)) != 0)
        return false;
      for (int axis : {0, 1, 3})
        if (gradient->stride[axis] % kCount != 0) return false;
    }
    return true;
  }
};

// Single elements of types that are known only at run time.
struct PixelsOfAnyType {
  __device__ static float load(const Image& image, std::int64_t index) {
    return load_pixel<float>(image, index);
  }
  __device__ static void store(const GradientImage& gradient, std::int64_t index, float x) {
    gradient.store(index, x);
  }
};

// The gradients of one pixel: from `along_s` and `along_d`, which the windows around it contribute,
// and, if `kErrors`, from its own error.
template <bool kErrors>
__device__ void gradients_of_pixel(float along_s, float along_d, float scale, float difference,
                                   const ErrorWeights<float>& errors, float& by_preds,
                                   float& by_target) {
  if constexpr (kErrors) {
    const float by_error = errors.by_difference(difference);
    by_preds = fmaf(along_s + along_d, scale, by_error);
    by_target = fmaf(along_s - along_d, scale, -by_error);
  } else {
    by_preds = (along_s + along_d) * scale;
    by_target = (along_s - along_d) * scale;
  }
}

}  // namespace syncfree::ssim
