// How code behind the C interface fails: by an exception that never leaves the library.
#pragma once

#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "syncfree/c_api.h"

namespace syncfree::api {

class Failure : public std::runtime_error {
 public:
  Failure(syncfree_status_code code, const std::string& message)
      : std::runtime_error(message), code_(code) {}

  syncfree_status_code code() const { return code_; }

 private:
  syncfree_status_code code_;
};

// Call it inside an `if`: building the message takes longer than the rest of a call.
template <class... Parts>
[[noreturn]] void fail(syncfree_status_code code, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Failure(code, message.str());
}

// Sets what syncfree_last_message returns on this thread. Returns `code`.
syncfree_status_code remember(syncfree_status_code code, const char* message) noexcept;

// Runs the body of a C function and turns what it throws into a status.
template <class Body>
syncfree_status_code guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return SYNCFREE_OK;
  } catch (const Failure& failure) {
    return remember(failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    return remember(SYNCFREE_OUT_OF_MEMORY, "The host has no memory left for this call.");
  } catch (const std::exception& error) {
    return remember(SYNCFREE_INTERNAL_ERROR, error.what());
  } catch (...) {
    return remember(SYNCFREE_INTERNAL_ERROR,
                    "`parallel_for` threw something that is no std::exception.");
  }
}

}  // namespace syncfree::api
