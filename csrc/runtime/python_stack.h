// The Python frames of the calling thread, read without the GIL.
//
// A thread that has released the GIL is inside a C function; until it takes the GIL back its own
// chain of frames, and the code objects that these hold, do not change. So it may read them: from a
// driver's callback, for instance, where taking the GIL would deadlock with threads that wait for
// the driver's locks. Nothing here allocates, takes a lock, or touches a reference count.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syncfree::runtime {

// A Python string in place: code points of 1, 2 or 4 bytes.
struct PythonText {
  const void* data = nullptr;
  std::size_t length = 0;
  int width = 1;
  bool is_ascii = false;
};

// Valid while it is visited. Its properties are looked up when they are asked for.
struct PythonFrame {
  const void* frame = nullptr;
  const void* code = nullptr;

  PythonText file() const;
  PythonText function() const;
  int line() const;
  // The same offset as `f_lasti`.
  int instruction() const;
};

// Whether this interpreter's frames are known: CPython 3.10 to 3.13 with a GIL.
bool can_walk_python_stack();

// Visits the innermost `most` frames of this thread, innermost first, until `visit` is false, and
// returns how many it visited; none in a thread that Python does not know.
std::size_t walk_python_stack(bool (*visit)(void* context, const PythonFrame& frame), void* context,
                              std::size_t most);

}  // namespace syncfree::runtime
