// How far the GPU has come, which the host can read at any time without calling the driver.
//
// A mark is a number that a stream writes to pinned memory when it gets there. Work that was queued
// before the mark is pending as long as the number has not arrived. A callback of the driver may
// read memory but must not ask the driver, so this is how it knows that a call found the GPU busy,
// and that it did not return before the GPU was done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace syncfree::runtime {

class GpuMarks {
 public:
  static constexpr std::size_t kStreams = 16;
  static constexpr std::size_t kBytes = kStreams * sizeof(std::uint32_t);

  // `driver` is a handle of dlopen or null; `words` is pinned memory of kBytes that is never freed.
  void use(void* driver, void* words);

  // Queues a mark on a stream of the current context. False if that is impossible: with a driver
  // without memory operations, a stream that is being captured, or too many busy streams.
  bool put(void* stream);

  // One bit for each stream whose last mark has not been reached.
  std::uint32_t pending() const {
    std::uint32_t bits = 0;
    const std::size_t used = used_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < used; ++i) {
      if (is_pending(i)) bits |= 1u << i;
    }
    return bits;
  }

 private:
  struct Stream {
    void* context;
    void* handle;
  };

  bool is_pending(std::size_t slot) const {
    const auto issued = issued_[slot].load(std::memory_order_relaxed);
    return static_cast<std::int32_t>(issued - words_[slot]) > 0;
  }

  // The index for a stream, perhaps that of one that is no longer busy; kStreams if all are.
  std::size_t place_of(const Stream& stream) const;

  int (*write_)(void*, std::uint64_t, std::uint32_t, unsigned int) = nullptr;
  int (*is_capturing_)(void*, int*) = nullptr;
  int (*context_)(void**) = nullptr;
  volatile std::uint32_t* words_ = nullptr;  // written by the GPU
  Stream streams_[kStreams] = {};
  std::atomic<std::uint32_t> issued_[kStreams] = {};
  std::atomic<std::size_t> used_ = 0;
  std::mutex mutex_;  // held while a mark is put
};

}  // namespace syncfree::runtime
