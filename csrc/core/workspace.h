// Scratch memory of one CUDA launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syncfree {

inline constexpr std::size_t kWorkspaceAlignment = 256;

inline std::size_t aligned_to_workspace(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

struct WorkspaceSize {
  std::size_t zeroed = 0;
  std::size_t scratch = 0;

  std::size_t total() const { return zeroed + scratch; }
  // Both parts rounded up, so that each can follow the other at an aligned address.
  WorkspaceSize aligned() const {
    return {aligned_to_workspace(zeroed), aligned_to_workspace(scratch)};
  }
};

// `zeroed` is all zero bytes when a launch begins and every kernel leaves it so, which saves a
// memset per call; `scratch` may hold anything. Both are aligned to 256 bytes, live on the launch's
// device and are used by one stream at a time.
struct Workspace {
  void* zeroed = nullptr;
  void* scratch = nullptr;
};

}  // namespace syncfree
