// From the moments of a window to SSIM, on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/dtype.h"

namespace syncfree::ssim {

// max(x, floor); NaN passes through.
__device__ inline double at_least(double x, double floor) {
  return x < floor ? floor : x;
}

__device__ inline float at_least(float x, float floor) {
#if __CUDA_ARCH__ >= 800
  float result;  // one instruction, where the comparison takes two
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(floor));
  return result;
#else
  return x < floor ? floor : x;
#endif
}

__device__ inline float at_most(float x, float ceiling) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(ceiling));
  return result;
#else
  return x > ceiling ? ceiling : x;
#endif
}

// One instruction, correct to about one unit in the last place.
__device__ inline float inverse_of(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline double inverse_of(double x) {
  return 1.0 / x;
}

// Exact for a power of two whose inverse is a normal float, as it is for scales: the exponent
// changes its sign.
__device__ inline float inverse_of_power(float x) {
  return detail::bit_cast<float>(0x7f000000u - detail::bit_cast<std::uint32_t>(x));
}

// With means ms, md and variances Vs, Vd of s and d in the window,
//   SSIM = (ms^2 - md^2 + 2 C1) / (ms^2 + md^2 + 2 C1) * (Vs - Vd + 2 C2) / (Vs + Vd + 2 C2):
// four moments instead of five. With t = ms^2 + 2 C1 and u = Vs + 2 C2, SSIM is one minus the
// deficit
//   2 (t Vd + u md^2) / ((t + md^2) (u + Vd)),
// which is exactly 0 for equal images, lies in [0, 2] once the variances are clamped at 0, and
// keeps its digits where SSIM is close to 1. The functions below leave the factor 2 out.
template <class T>
struct Terms {
  T t;
  T u;
  T md_squared;
  T vd;
};

template <class T>
__device__ Terms<T> make_terms(T mean_s, T variance_s, T mean_d, T variance_d, T twice_c1,
                               T twice_c2) {
  return {fma(mean_s, mean_s, twice_c1), at_least(variance_s, T{}) + twice_c2, mean_d * mean_d,
          at_least(variance_d, T{})};
}

template <class T>
__device__ T deficit_numerator(const Terms<T>& k) {
  return fma(k.t, k.vd, k.u * k.md_squared);
}

// (t + md^2) (u + Vd), multiplied out to reuse the numerator. No term is negative, so the
// denominator is not below the numerator.
template <class T>
__device__ T deficit_denominator(const Terms<T>& k, T numerator) {
  return fma(k.t, k.u, fma(k.md_squared, k.vd, numerator));
}

// The contrast term (Vs - Vd + 2 C2) / (Vs + Vd + 2 C2) is one minus 2 vd over this.
template <class T>
__device__ T contrast_denominator(const Terms<T>& k) {
  return k.u + k.vd;
}

}  // namespace syncfree::ssim
