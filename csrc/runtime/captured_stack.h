// A copy of a thread's Python frames that outlives them, in memory given beforehand.
#pragma once

#include <cstddef>

namespace syncfree::runtime {

// UTF-8. Of a longer text the end is kept: it tells more of a path.
template <std::size_t kCapacity>
struct ShortText {
  char bytes[kCapacity];
  std::size_t size = 0;
};

struct CapturedFrame {
  ShortText<240> file;
  ShortText<120> function;
  int line = 0;
};

// Of this thread, innermost first, without the GIL; returns how many.
std::size_t capture_python_stack(CapturedFrame* frames, std::size_t most);

}  // namespace syncfree::runtime
