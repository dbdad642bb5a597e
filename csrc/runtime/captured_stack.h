// A copy of a thread's Python frames that outlives them, in preallocated memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/hashing.h"
#include "runtime/python_stack.h"

namespace syncfree::runtime {

// UTF-8. A longer text loses its beginning: the end of a path says more.
template <std::size_t kCapacity>
struct ShortText {
  char bytes[kCapacity];
  std::size_t size = 0;
};

template <std::size_t kCapacity>
bool same(const ShortText<kCapacity>& a, const ShortText<kCapacity>& b) {
  return a.size == b.size && std::memcmp(a.bytes, b.bytes, a.size) == 0;
}

template <std::size_t kCapacity>
std::uint64_t hash_of(const ShortText<kCapacity>& text, std::uint64_t hash = 0) {
  return hash_of(text.bytes, text.size, hash);
}

struct CapturedFrame {
  ShortText<240> file;
  ShortText<120> function;
  int line = 0;
};

inline bool same(const CapturedFrame& a, const CapturedFrame& b) {
  return a.line == b.line && same(a.file, b.file) && same(a.function, b.function);
}

inline std::uint64_t hash_of(const CapturedFrame& frame) {
  const auto line = static_cast<std::uint64_t>(static_cast<std::uint32_t>(frame.line));
  return hash_of(frame.function, hash_of(frame.file, line));
}

void copy(const PythonFrame& frame, CapturedFrame& out);

// Copies the frames of this thread, innermost first, without the GIL; returns how many.
std::size_t capture_python_stack(CapturedFrame* frames, std::size_t most);

}  // namespace syncfree::runtime
