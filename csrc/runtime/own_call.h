// Marks driver calls that this library makes itself, so that the sync detector leaves them out.
#pragma once

namespace syncfree::runtime {

// Not of the initial-exec TLS model, which would save a region six calls: once other libraries have
// used up the room that the loader sets aside for it, ours would not load.
inline constinit thread_local int own_call_depth = 0;

class OwnCall {
 public:
  OwnCall() { ++own_call_depth; }
  ~OwnCall() { --own_call_depth; }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;
};

}  // namespace syncfree::runtime
