// CUDA's keywords and built-in functions for a host compiler; included before every converted file.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "grid.h"

#undef __device__
#undef __host__
#undef __global__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline

// Before the macros below, because cudaLaunchConfig_t has members named gridDim and blockDim.
namespace cuda_on_cpu {

// Launches run one after another, even if the attributes allow an overlap.
template <class... P>
cudaError_t launch_configured(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                              const std::type_identity_t<P>&... parameters) {
  launch(config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes) (*kernel)(parameters...);
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

#define threadIdx ::cuda_on_cpu::thread_index
#define blockIdx ::cuda_on_cpu::block_index
#define blockDim ::cuda_on_cpu::block_size
#define gridDim ::cuda_on_cpu::grid_size

namespace cuda_on_cpu {

// PTX instructions for floats.
inline float flush(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
inline float rcp_approx(float x) {
  return flush(1.0f / flush(x));
}
inline float max_nan(float a, float b) {
  return a != a || b != b ? NAN : a > b ? a : b;
}
inline float min_nan(float a, float b) {
  return a != a || b != b ? NAN : a < b ? a : b;
}

// Keeps the compiler from contracting operations that are to be rounded separately.
inline float opaque(float x) {
  asm volatile("" : "+x"(x));
  return x;
}
inline float multiply_rounded(float a, float b) {
  return opaque(opaque(a) * opaque(b));
}
inline float subtract_rounded(float a, float b) {
  return opaque(opaque(a) - opaque(b));
}

inline float bits_as_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// Byte i of the result is the byte of x and y (eight in all) that nibble i of the selector names.
inline unsigned byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

// Functions of the four bytes in a word.
inline unsigned absolute_byte_differences(unsigned a, unsigned b) {
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const int difference = static_cast<int>(a >> shift & 255) - static_cast<int>(b >> shift & 255);
    result |= static_cast<unsigned>(difference < 0 ? -difference : difference) << shift;
  }
  return result;
}
inline unsigned dot_bytes(unsigned a, unsigned b, unsigned sum) {
  for (int shift = 0; shift < 32; shift += 8) sum += (a >> shift & 255) * (b >> shift & 255);
  return sum;
}

// Functions of the two 16-bit floats in a word.
inline float2 widen(__half2 pair) {
  return __half22float2(pair);
}
inline float2 widen(__nv_bfloat162 pair) {
  return __bfloat1622float2(pair);
}

template <class Pair>
unsigned greater_unordered_mask(Pair a, Pair b) {
  const float2 x = widen(a), y = widen(b);
  return (x.x <= y.x ? 0u : 0xffffu) | (x.y <= y.y ? 0u : 0xffff0000u);
}

template <class Pair>
Pair max_pair_nan(Pair a, Pair b) {
  const float2 x = widen(a), y = widen(b);
  std::uint16_t p[2], q[2];
  std::memcpy(p, &a, sizeof(p));
  std::memcpy(q, &b, sizeof(q));
  const auto pick = [](float f, float g, std::uint16_t of_f, std::uint16_t of_g) {
    if (f != f || g != g) return std::uint16_t{0x7fff};
    return f > g ? of_f : of_g;
  };
  const std::uint16_t result[2] = {pick(x.x, y.x, p[0], q[0]), pick(x.y, y.y, p[1], q[1])};
  std::memcpy(&a, result, sizeof(result));
  return a;
}

// Warp functions.
template <class T>
T shuffle_from(unsigned mask, T value, unsigned lane, Site site) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = exchange(mask, bits, lane, "shuffle", site);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned lane_index() {
  return threadIdx.x % 32;
}

template <class T>
T shuffle(unsigned mask, T value, int lane, Site site = Site::current()) {
  return shuffle_from(mask, value, static_cast<unsigned>(lane) % 32, site);
}
template <class T>
T shuffle_xor(unsigned mask, T value, int bits, Site site = Site::current()) {
  return shuffle_from(mask, value, lane_index() ^ static_cast<unsigned>(bits), site);
}
template <class T>
T shuffle_down(unsigned mask, T value, unsigned by, Site site = Site::current()) {
  const unsigned lane = lane_index();
  return shuffle_from(mask, value, lane + by < 32 ? lane + by : lane, site);
}
template <class T>
T shuffle_up(unsigned mask, T value, unsigned by, Site site = Site::current()) {
  const unsigned lane = lane_index();
  return shuffle_from(mask, value, lane >= by ? lane - by : lane, site);
}
inline void sync_warp(unsigned mask = ~0u, Site site = Site::current()) {
  exchange(mask, 0, 0, "__syncwarp", site);
}
inline bool any(unsigned mask, bool predicate, Site site = Site::current()) {
  return vote_any(mask, predicate, site);
}
inline bool all(unsigned mask, bool predicate, Site site = Site::current()) {
  return vote_all(mask, predicate, site);
}

// Barriers.
inline void sync_threads(Site site = Site::current()) {
  barrier(site);
}
inline int sync_threads_or(int predicate, Site site = Site::current()) {
  return barrier_or(predicate, site);
}

// Memory accesses. One thread runs at a time, so plain accesses are atomic.
template <class T>
T load_yielding(const T* address) {
  maybe_yield();
  return *address;
}
template <class T, class F>
T exchange_memory(T* address, F&& next) {
  maybe_yield();
  const T old = *address;
  *address = next(old);
  return old;
}

template <class F>
cudaError_t set_attribute(F* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    allow_dynamic_shared(reinterpret_cast<const void*>(kernel), value);
  return cudaSuccess;
}

// All code is for the device's own architecture.
template <class F>
cudaError_t function_attributes(cudaFuncAttributes* attributes, F*) {
  int major, minor;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  *attributes = {};
  attributes->ptxVersion = 10 * major + minor;
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

template <class T, class U>
T atomicAdd(T* address, U x) {
  return cuda_on_cpu::exchange_memory(address, [&](T old) { return static_cast<T>(old + T(x)); });
}
template <class T, class U>
T atomicOr(T* address, U x) {
  return cuda_on_cpu::exchange_memory(address, [&](T old) { return static_cast<T>(old | T(x)); });
}
template <class T, class U>
T atomicMax(T* address, U x) {
  return cuda_on_cpu::exchange_memory(address, [&](T old) { return T(x) > old ? T(x) : old; });
}
template <class T, class U>
T atomicMin(T* address, U x) {
  return cuda_on_cpu::exchange_memory(address, [&](T old) { return T(x) < old ? T(x) : old; });
}
template <class T, class U>
T atomicExch(T* address, U x) {
  return cuda_on_cpu::exchange_memory(address, [&](T) { return T(x); });
}
template <class T, class U, class V>
T atomicCAS(T* address, U expected, V x) {
  return cuda_on_cpu::exchange_memory(address,
                                      [&](T old) { return old == T(expected) ? T(x) : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return cuda_on_cpu::exchange_memory(address,
                                      [&](unsigned old) { return old >= limit ? 0u : old + 1; });
}

template <class A, class B>
constexpr auto min(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return Common(a) < Common(b) ? Common(a) : Common(b);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return Common(a) > Common(b) ? Common(a) : Common(b);
}

#undef __hgtu2_mask
#undef __hmax2_nan
#define __syncthreads ::cuda_on_cpu::sync_threads
#define __syncthreads_or ::cuda_on_cpu::sync_threads_or
#define __syncwarp ::cuda_on_cpu::sync_warp
#define __any_sync ::cuda_on_cpu::any
#define __all_sync ::cuda_on_cpu::all
#define __shfl_sync ::cuda_on_cpu::shuffle
#define __shfl_xor_sync ::cuda_on_cpu::shuffle_xor
#define __shfl_up_sync ::cuda_on_cpu::shuffle_up
#define __shfl_down_sync ::cuda_on_cpu::shuffle_down
#define __threadfence ::cuda_on_cpu::maybe_yield
#define __threadfence_block ::cuda_on_cpu::maybe_yield
#define __threadfence_system ::cuda_on_cpu::maybe_yield
#define __ldcg ::cuda_on_cpu::load_yielding
#define __ldcs(address) (*(address))
#define __popc(word) __builtin_popcount(word)
#define __ldg(address) (*(address))
#define __fmul_rn ::cuda_on_cpu::multiply_rounded
#define __fsub_rn ::cuda_on_cpu::subtract_rounded
#define __int_as_float ::cuda_on_cpu::bits_as_float
#define __trap std::abort
#define __byte_perm ::cuda_on_cpu::byte_perm
#define __vabsdiffu4 ::cuda_on_cpu::absolute_byte_differences
#define __dp4a ::cuda_on_cpu::dot_bytes
#define __hgtu2_mask ::cuda_on_cpu::greater_unordered_mask
#define __hmax2_nan ::cuda_on_cpu::max_pair_nan
#define cudaLaunchKernelEx ::cuda_on_cpu::launch_configured
#define cudaFuncGetAttributes ::cuda_on_cpu::function_attributes
#define cudaFuncSetAttribute ::cuda_on_cpu::set_attribute
