// Addresses of global memory that stay in registers.
#pragma once

#include <cstddef>

namespace syncfree::ssim {

// An address as the hardware takes it: the compiler would put it together anew for each row, and
// does not know what memory an address from shared memory points to.
template <class T>
__device__ T* settled(T* address) {
#ifdef __CUDA_ARCH__
  std::size_t global = __cvta_generic_to_global(address);
  asm volatile("" : "+l"(global));
  return static_cast<T*>(__cvta_global_to_generic(global));
#else
  return address;
#endif
}

// What follows from it is computed anew where it is needed, and takes no register in between.
__device__ inline int anew(int x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// One access to memory that nobody reads again soon, which leaves the cache to others.
template <class Vector>
__device__ Vector load_streaming(const Vector* from) {
#ifdef __CUDA_ARCH__
  return __ldcs(from);
#else
  return *from;
#endif
}

// Likewise, where `condition` holds: without a branch, around which nothing could be mixed.
__device__ inline void store_streaming_if(bool condition, uint4* to, const uint4& x) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.s32 p, %5, 0;\n"
      " @p st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(__cvta_generic_to_global(to)),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(static_cast<int>(condition))
      : "memory");
#else
  if (condition) *to = x;
#endif
}
__device__ inline void store_streaming_if(bool condition, uint2* to, const uint2& x) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.s32 p, %3, 0;\n"
      " @p st.global.cs.v2.b32 [%0], {%1, %2};\n}" ::"l"(__cvta_generic_to_global(to)),
      "r"(x.x), "r"(x.y), "r"(static_cast<int>(condition))
      : "memory");
#else
  if (condition) *to = x;
#endif
}

}  // namespace syncfree::ssim
