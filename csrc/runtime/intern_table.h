// Keeps each value once, in preallocated memory, so that a site can be stored as a few numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/hashing.h"
#include "runtime/zeroed_array.h"

namespace syncfree::runtime {

inline constexpr std::int32_t kNoRoom = -1;

// Values are compared by content and not by address: Python's code objects and their names may be
// freed, and others may take their place. One thread writes; another may read a value whose number
// it was given.
template <typename T, std::size_t kCapacity>
class InternTable {
 public:
  void clear() {
    count_ = 0;
    std::fill_n(index_.get(), kPlaces, 0);
  }

  bool is_half_full() const { return count_ >= kCapacity / 2; }

  // The number of the value, which is added if it is new; kNoRoom if there is no room for that.
  std::int32_t intern(const T& value) {
    const std::uint64_t hash = hash_of(value);
    std::size_t place = hash & (kPlaces - 1);
    for (; index_[place] != 0; place = (place + 1) & (kPlaces - 1)) {
      const std::int32_t number = index_[place] - 1;
      if (hashes_[number] == hash && same(values_[number], value)) return number;
    }
    if (count_ == kCapacity) return kNoRoom;
    const auto number = static_cast<std::int32_t>(count_++);
    values_[number] = value;
    hashes_[number] = hash;
    index_[place] = number + 1;
    return number;
  }

  const T& operator[](std::int32_t number) const { return values_[number]; }

 private:
  static constexpr std::size_t kPlaces = 2 * kCapacity;
  static_assert((kPlaces & (kPlaces - 1)) == 0);

  std::size_t count_ = 0;
  ZeroedArray<std::int32_t> index_{kPlaces};  // by hash; 0: empty, else one more than the number
  ZeroedArray<std::uint64_t> hashes_{kCapacity};
  ZeroedArray<T> values_{kCapacity};
};

}  // namespace syncfree::runtime
