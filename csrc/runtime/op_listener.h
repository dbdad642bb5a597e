// How csrc/record, which is built for one version of torch, reports torch's operators.
//
// Plain C types, as the two libraries may come from different compilers. Both functions are called
// in the thread that runs the operator, take no lock and never throw.
#pragma once

#include <cstdint>

namespace syncfree::runtime {

struct OpListener {
  // An operator begins, or a node of the autograd graph begins to run. `id` identifies it until it
  // ends; `name` lives as long. For an operator, `sequence` is the number that this thread's next
  // node will get, negative if it makes none. For a node it is the node's own number, and `thread`
  // the thread that made it.
  void (*begin)(const void* id, const char* name, bool is_node, std::int64_t sequence,
                std::uint64_t thread);
  // It ends, also if it throws. `thread` is torch's own number of this thread, and `sequence` the
  // number that the thread's next node would get.
  void (*end)(const void* id, std::uint64_t thread, std::uint64_t sequence);
};

}  // namespace syncfree::runtime
