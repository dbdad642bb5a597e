// Which host memory is pinned, for callers that may neither allocate nor ask the driver.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncfree::runtime {

// Ranges of addresses, sorted; they do not overlap, as the driver refuses to pin memory twice.
class PinnedRanges {
 public:
  PinnedRanges() { ranges_.reserve(kCapacity); }

  // Beyond the capacity nothing is added: such memory is looked up in the driver later on.
  void add(std::uint64_t begin, std::uint64_t bytes) {
    if (bytes == 0) return;
    const Held held(lock_);
    const auto place = after(begin);
    if (place != ranges_.begin() && std::prev(place)->begin == begin) {
      std::prev(place)->end = begin + bytes;
    } else if (ranges_.size() < kCapacity) {
      ranges_.insert(place, {begin, begin + bytes});
    }
  }

  void remove(std::uint64_t begin) {
    const Held held(lock_);
    const auto place = after(begin);
    if (place != ranges_.begin() && std::prev(place)->begin == begin) {
      ranges_.erase(std::prev(place));
    } else {
      unknown_[unknown_count_++ % kUnknown] = begin;
    }
  }

  // Whether the address may have been in memory that was pinned before the watch began and is no
  // longer. Of such memory only the beginning is known, not the size.
  bool may_have_contained(std::uint64_t address) {
    const Held held(lock_);
    auto* end = unknown_ + std::min(unknown_count_, kUnknown);
    return std::any_of(unknown_, end, [&](std::uint64_t begin) {
      return begin <= address && address - begin < kLargest;
    });
  }

  bool contains(std::uint64_t address) {
    const Held held(lock_);
    const auto place = after(address);
    return place != ranges_.begin() && address < std::prev(place)->end;
  }

  void clear() {
    const Held held(lock_);
    ranges_.clear();
    unknown_count_ = 0;
  }

 private:
  static constexpr std::size_t kCapacity = 16384;
  static constexpr std::size_t kUnknown = 64;
  static constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;

  struct Range {
    std::uint64_t begin, end;
  };

  // A spin lock: it is held for a binary search, and a mutex may put the caller to sleep.
  class Held {
   public:
    explicit Held(std::atomic_flag& lock) : lock_(lock) {
      while (lock_.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Held() { lock_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& lock_;
  };

  std::vector<Range>::iterator after(std::uint64_t address) {
    return std::upper_bound(
        ranges_.begin(), ranges_.end(), address,
        [](std::uint64_t value, const Range& range) { return value < range.begin; });
  }

  std::vector<Range> ranges_;
  std::uint64_t unknown_[kUnknown] = {};
  std::size_t unknown_count_ = 0;
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
};

}  // namespace syncfree::runtime
