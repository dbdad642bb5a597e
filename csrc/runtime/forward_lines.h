// The Python line that made each of the newest nodes of the autograd graph, in preallocated memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace syncfree::runtime {

// Where a frame is kept: a thread's table, and the frame's number in it.
struct LinePlace {
  std::uint32_t table = 0;
  std::int32_t number = 0;
};

// Any thread writes and any thread reads, without a lock: an entry is one word. Nodes of a thread
// have consecutive numbers, so that each overwrites the oldest.
class ForwardLines {
 public:
  static constexpr std::size_t kNodes = 1 << 16;
  static constexpr int kTableBits = 6, kNumberBits = 11;

  void clear() {
    for (auto& each : entries_) each.store(0, std::memory_order_relaxed);
  }

  void put(std::uint64_t thread, std::uint64_t sequence, LinePlace place) {
    const auto where = static_cast<std::uint64_t>(place.table) << kNumberBits |
                       static_cast<std::uint64_t>(place.number);
    entry(thread, sequence).store(key(thread, sequence) | where, std::memory_order_release);
  }

  bool find(std::uint64_t thread, std::uint64_t sequence, LinePlace& place) {
    const std::uint64_t word = entry(thread, sequence).load(std::memory_order_acquire);
    if ((word & ~kPlaceMask) != key(thread, sequence)) return false;
    place.table = static_cast<std::uint32_t>((word & kPlaceMask) >> kNumberBits);
    place.number = static_cast<std::int32_t>(word & ((1U << kNumberBits) - 1));
    return true;
  }

 private:
  static constexpr std::uint64_t kPlaceMask = (std::uint64_t{1} << (kTableBits + kNumberBits)) - 1;

  // The top bit marks a used entry. Then come 14 bits of the thread's number and 32 of the node's:
  // other nodes that share these are too old to be kept.
  static std::uint64_t key(std::uint64_t thread, std::uint64_t sequence) {
    return std::uint64_t{1} << 63 | (thread & 0x3fff) << 49 | (sequence & 0xffffffff) << 17;
  }
  static_assert(kTableBits + kNumberBits == 17);

  std::atomic<std::uint64_t>& entry(std::uint64_t thread, std::uint64_t sequence) {
    return entries_[(sequence + thread * 0x9e3779b9U) % kNodes];
  }

  std::atomic<std::uint64_t> entries_[kNodes] = {};
};

}  // namespace syncfree::runtime
