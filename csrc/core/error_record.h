// What a kernel saw that it must not raise itself: the host reads it later, without a wait.
#pragma once

#include <cstdint>

namespace syncfree {

enum class ErrorKind : std::int64_t {
  kNone = 0,
  kTargetOutOfRange = 1,
  kPredsOutOfRange = 2,
};

// Written to mapped pinned memory by the last block of a launch, only if something was wrong.
// `count` is stored last, behind a system-wide fence, so a host that sees it sees the rest.
struct ErrorRecord {
  std::int64_t kind;
  std::int64_t first_index;
  std::int64_t first_value;
  std::int64_t count;
};

}  // namespace syncfree
