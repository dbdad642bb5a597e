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

}  // namespace syncfree::ssim
