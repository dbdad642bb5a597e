// How csrc/record, which is built for one version of torch, tells of torch's operators.
//
// Plain C types, as the two libraries may come from different compilers. Both functions are called
// in the thread that runs the operator, take no lock and never throw.
#pragma once

#include <cstdint>

namespace syncfree::runtime {

struct OpListener {
  // An operator begins, or a node of autograd. `id` names it until it ends; `name` lives as long.
  // `sequence` is the number that this thread's next node of the autograd graph gets, negative
  // where none is made; for a node that runs, its own number, and `thread` the one that made it.
  void (*begin)(const void* id, const char* name, bool is_node, std::int64_t sequence,
                std::uint64_t thread);
  // It ends, also if it throws. `thread` is this one, by torch's own count, and `sequence` the
  // number that its next node would get.
  void (*end)(const void* id, std::uint64_t thread, std::uint64_t sequence);
};

}  // namespace syncfree::runtime
