// Marks driver calls that this library makes itself, so that the sync detector leaves them out.
#pragma once

namespace syncfree::runtime {

// With the initial-exec model it is found without a call, of which each region would make six. The
// loader has room set aside for the few bytes of modules that come late.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int own_call_depth = 0;

class OwnCall {
 public:
  OwnCall() { ++own_call_depth; }
  ~OwnCall() { --own_call_depth; }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;
};

}  // namespace syncfree::runtime
