// The C functions for the library's version and build, and for the last error message.
#include <string>

#include "api/failure.h"

namespace syncfree::api {
namespace {

thread_local std::string last_message;

}  // namespace

syncfree_status_code remember(syncfree_status_code code, const char* message) noexcept {
  try {
    last_message = message;
  } catch (...) {
    last_message.clear();  // no memory for the message; the code remains
  }
  return code;
}

}  // namespace syncfree::api

extern "C" {

const char* syncfree_last_message(void) {
  return syncfree::api::last_message.c_str();
}

const char* syncfree_version(void) {
  return SYNCFREE_VERSION;
}

int32_t syncfree_has_cuda(void) {
#if defined(SYNCFREE_WITH_CUDA)
  return 1;
#else
  return 0;
#endif
}

}  // extern "C"
