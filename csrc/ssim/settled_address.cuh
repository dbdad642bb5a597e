// Global addresses that stay in registers, and streaming access to global memory.
#pragma once

#include <cstddef>

namespace syncfree::ssim {

// Pins a global address in a register. Otherwise the compiler would compute it anew for each row,
// and would use generic accesses for an address that was loaded from shared memory, since it does
// not know which memory that points to.
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

// Hides the value from the compiler, which then computes what depends on it anew where it is
// needed, instead of keeping it in a register.
__device__ inline int anew(int x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// A load of memory that is not read again soon, and should not displace other data in the cache.
template <class Vector>
__device__ Vector load_streaming(const Vector* from) {
#ifdef __CUDA_ARCH__
  return __ldcs(from);
#else
  return *from;
#endif
}

// A store of the same kind, predicated instead of behind a branch, across which the compiler could
// not interleave instructions.
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
