// The operators of torch that a thread is inside of, and the Python line of each node of the
// autograd graph, for the sync detector.
//
// A wait in a backward pass happens in a thread of autograd that has no Python frames, or at the
// line that called backward(). Which line of the forward pass is behind it is known only if it was
// noted then: each operator that makes nodes leaves its line under their numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/captured_stack.h"
#include "runtime/op_listener.h"

namespace syncfree::runtime {

// Of a longer name the beginning is kept.
using OperatorName = ShortText<96>;

// Of one thread at one moment; the names are valid until the operator goes on.
struct RunningOperators {
  static constexpr std::size_t kMost = 16;
  std::array<const OperatorName*, kMost> name;  // innermost first
  std::size_t count = 0;
  bool is_backward = false;                // inside of a node that a forward operator made
  const CapturedFrame* forward = nullptr;  // the line of that operator; null if it is not known
};

// How the path of a file begins, in the form in which Python has it.
struct PathBeginning {
  std::string bytes;
  int width = 1;  // of a code point

  bool operator==(const PathBeginning&) const = default;
};

// Forgets what was noted before. Lines of files whose path begins so are the machinery's and not
// the program's. What this returns is to be called until nobody listens.
const OpListener& listen_to_operators(std::vector<PathBeginning> machinery);

// Of the calling thread. Neither allocates nor takes a lock.
RunningOperators running_operators();

}  // namespace syncfree::runtime
