// Marks driver calls that this library makes itself, so that the sync detector leaves them out.
#pragma once

namespace syncfree::runtime {

inline thread_local int own_call_depth = 0;

class OwnCall {
 public:
  OwnCall() { ++own_call_depth; }
  ~OwnCall() { --own_call_depth; }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;
};

}  // namespace syncfree::runtime
