// Four floats of shared memory in one access.
#pragma once

namespace syncfree::ssim {

__device__ inline void load_vector(const float* from, float* to) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ inline void store_vector(float* to, const float (&x)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

}  // namespace syncfree::ssim
