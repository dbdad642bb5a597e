// Hashes of short texts, for tables in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace syncfree::runtime {

// The finalizer of MurmurHash3.
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

inline std::uint64_t hash_of(const char* bytes, std::size_t size, std::uint64_t hash) {
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  std::uint64_t word = size;
  std::memcpy(&word, bytes, size);
  return mix(hash ^ word);
}

}  // namespace syncfree::runtime
