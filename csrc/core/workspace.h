// Scratch memory of one CUDA launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syncfree {

struct WorkspaceSize {
  std::size_t zeroed = 0;
  std::size_t scratch = 0;
};

// `zeroed` is all zero bytes when a launch begins and every kernel leaves it so, which saves the
// memset a call; `scratch` holds anything. Both are aligned to 256 bytes, live on the launch's
// device and are used by one stream at a time.
struct Workspace {
  void* zeroed = nullptr;
  void* scratch = nullptr;
};

}  // namespace syncfree
