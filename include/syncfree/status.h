// The outcome of a call.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "syncfree/c_api.h"

namespace syncfree {

enum class StatusCode : std::int32_t {
  kOk = SYNCFREE_OK,
  kInvalidArgument = SYNCFREE_INVALID_ARGUMENT,
  kWrongShape = SYNCFREE_WRONG_SHAPE,
  kWrongDtype = SYNCFREE_WRONG_DTYPE,
  kWrongDevice = SYNCFREE_WRONG_DEVICE,
  kNeedsScratch = SYNCFREE_NEEDS_SCRATCH,
  kBadLabel = SYNCFREE_BAD_LABEL,
  kWithoutCuda = SYNCFREE_WITHOUT_CUDA,
  kCudaError = SYNCFREE_CUDA_ERROR,
  kOutOfMemory = SYNCFREE_OUT_OF_MEMORY,
  kInternalError = SYNCFREE_INTERNAL_ERROR,
};

// Success, which costs no allocation, or a code and a sentence that says what was expected and what
// was passed.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

namespace detail {

// The status of the C function that this thread has just called.
inline Status status_of(syncfree_status_code code) {
  if (code == SYNCFREE_OK) return {};
  return {static_cast<StatusCode>(code), syncfree_last_message()};
}

}  // namespace detail

// Whether the loaded library takes CUDA tensors.
inline bool has_cuda() {
  return syncfree_has_cuda() != 0;
}

// The version of the loaded library; SYNCFREE_VERSION is that of the headers.
inline const char* version() {
  return syncfree_version();
}

}  // namespace syncfree
