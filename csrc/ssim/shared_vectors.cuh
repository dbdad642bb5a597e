// 128-bit access to shared memory, and shared addresses that take one register.
#pragma once

#include <cstring>

namespace syncfree::ssim {

__device__ inline void load_vector(const float* from, float* to) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ inline void store_vector(float* to, const float (&x)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

// An address in shared memory, in one register. If plain pointers trade places from row to row, the
// compiler loses track of the memory they point to, and uses generic accesses.
class SharedPlace {
 public:
  SharedPlace() = default;

#ifdef __CUDA_ARCH__
  explicit __device__ SharedPlace(float* place)
      : address_(static_cast<unsigned>(__cvta_generic_to_shared(place))) {}

  // Pins the address in its register; otherwise the compiler computes it anew where it is needed.
  __device__ void settle() { asm volatile("" : "+r"(address_)); }

  __device__ float load() const {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address_));
    return x;
  }
  __device__ void load_vector(float* to) const {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(address_));
  }
  // Four elements of one, two or four bytes each.
  template <class T>
  __device__ void load_elements(T (&to)[4]) const {
    unsigned words[sizeof(T)];
    if constexpr (sizeof(T) == 4)
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(address_));
    else if constexpr (sizeof(T) == 2)
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=r"(words[0]), "=r"(words[1])
                   : "r"(address_));
    else
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(words[0]) : "r"(address_));
    memcpy(to, words, sizeof words);
  }
  template <class T>
  __device__ void store_elements(const T (&x)[4]) const {
    unsigned words[sizeof(T)];
    memcpy(words, x, sizeof words);
    if constexpr (sizeof(T) == 4)
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address_), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3]));
    else if constexpr (sizeof(T) == 2)
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address_), "r"(words[0]),
                   "r"(words[1]));
    else
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(address_), "r"(words[0]));
  }
  // Asynchronous copy (core/async_copy.cuh) through the first-level cache, where neighboring lanes
  // find the rest of a sector.
  template <int kBytes>
  __device__ void copy(const void* from) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address_),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes));
  }
  __device__ void store(float x) const {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address_), "f"(x));
  }
  __device__ void store_vector(const float (&x)[4]) const {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address_), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3]));
  }

 private:
  using Address = unsigned;
#else
  explicit __device__ SharedPlace(float* place) : address_(reinterpret_cast<char*>(place)) {}

  __device__ void settle() {}

  __device__ float load() const { return *place(); }
  __device__ void load_vector(float* to) const { ssim::load_vector(place(), to); }
  template <class T>
  __device__ void load_elements(T (&to)[4]) const {
    memcpy(to, address_, sizeof to);
  }
  template <class T>
  __device__ void store_elements(const T (&x)[4]) const {
    memcpy(address_, x, sizeof x);
  }
  template <int kBytes>
  __device__ void copy(const void* from) const {
    memcpy(address_, from, kBytes);
  }
  __device__ void store(float x) const { *place() = x; }
  __device__ void store_vector(const float (&x)[4]) const { ssim::store_vector(place(), x); }

 private:
  using Address = char*;

  __device__ float* place() const { return reinterpret_cast<float*>(address_); }
#endif

 public:
  __device__ SharedPlace operator+(int floats) const {
    SharedPlace place;
    place.address_ = address_ + floats * static_cast<int>(sizeof(float));
    return place;
  }

 private:
  Address address_;
};

}  // namespace syncfree::ssim
