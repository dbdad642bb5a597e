// The operators of torch that a thread is inside of, and the Python line of each node of the
// autograd graph, for the sync detector.
//
// A wait in a backward pass happens in a thread of autograd that has no Python frames, or at the
// line that called backward(). The line of the forward pass behind it, the node's forward line, is
// known only if it was noted then: each operator that makes nodes notes its line under their
// numbers. It is the innermost line outside of the machinery: the files of torch and the like.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/captured_stack.h"
#include "runtime/op_listener.h"

namespace syncfree::runtime {

// A longer name loses its end.
using OperatorName = ShortText<96>;

// The operators of one thread at one moment; the names are valid until the innermost one continues.
struct RunningOperators {
  static constexpr std::size_t kMost = 16;
  std::array<const OperatorName*, kMost> name;  // innermost first
  std::size_t count = 0;
  bool is_backward = false;                // inside of a node that a forward operator made
  const CapturedFrame* forward = nullptr;  // the line of that operator; null if it is not known
};

// The beginning of a file's path, in the form in which Python stores it.
struct PathBeginning {
  std::string bytes;
  int width = 1;  // of a code point

  bool operator==(const PathBeginning&) const = default;
};

// Forgets what was noted before, and returns the functions to call for each operator as long as
// someone listens. Files whose path has one of these beginnings are machinery, not the program.
const OpListener& listen_to_operators(std::vector<PathBeginning> machinery);

// The operators of the calling thread. Neither allocates nor takes a lock.
RunningOperators running_operators();

}  // namespace syncfree::runtime
