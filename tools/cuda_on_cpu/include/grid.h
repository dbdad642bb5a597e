// The emulator's functions for converted kernels and their launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>

namespace cuda_on_cpu {

// Where in the kernel's source a thread is; barriers check that all their threads are at the same.
using Site = std::source_location;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
// Indices of the running thread: one runs at a time.
extern Index thread_index, block_index, block_size, grid_size;

// Waits for every live thread of the block. The second also tells whether `predicate` is nonzero in
// any of them.
void barrier(Site site);
int barrier_or(int predicate, Site site);

// Waits for all lanes of the warp, then returns the value of lane `from`.
std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned from, const char* what,
                       Site site);
bool vote_any(unsigned mask, bool predicate, Site site);
bool vote_all(unsigned mask, bool predicate, Site site);

// Called at atomics, fences and loads that bypass the L1 cache: in random order, another thread may
// run here.
void maybe_yield();

// Shared memory of the running block, filled with 0xFB before it is first used.
void* static_shared(const void* key, std::size_t size);
void* dynamic_shared();

template <class T>
T& shared_variable(const void* key) {
  return *static_cast<T*>(static_shared(key, sizeof(T)));
}

void allow_dynamic_shared(const void* kernel, int bytes);

struct Configuration {
  std::uint64_t blocks, threads;
  std::size_t shared;
  Site site;
};
void run_grid(const void* kernel, const Configuration& configuration, std::size_t parameter_bytes,
              const std::function<void()>& thread);

// A kernel's parameters are copied when it is launched, as on the device.
template <class... P>
struct BoundKernel {
  Configuration configuration;
  void (*kernel)(P...);

  void operator()(std::remove_cv_t<P>... parameters) const {
    const std::tuple<std::remove_cv_t<P>...> copies(parameters...);
    run_grid(reinterpret_cast<const void*>(kernel), configuration, (sizeof(P) + ... + 0),
             [&] { std::apply(kernel, copies); });
  }
};

struct Launcher {
  Configuration configuration;

  template <class... P>
  BoundKernel<P...> operator()(void (&kernel)(P...)) const {
    return {configuration, &kernel};
  }
};

inline Launcher launch(std::uint64_t blocks, std::uint64_t threads, std::size_t shared = 0,
                       cudaStream_t = nullptr, Site site = Site::current()) {
  return {{blocks, threads, shared, site}};
}

}  // namespace cuda_on_cpu
