// One stretch of a stream between two events, for callers that pair the calls themselves.
#pragma once

#include "runtime/cuda_device.h"

namespace syncfree::runtime {

class EventPair {
 public:
  EventPair() = default;
  ~EventPair();
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;

  // In the current context, which must be the same for both.
  void start(cuda::Stream stream);
  void stop(cuda::Stream stream);

  // Whether the first event has passed; false before `start`. Never waits.
  bool started() const;
  // Whether both events have passed; false before `stop`. Never waits.
  bool ready() const;
  // GPU time between them; throws cuda::Error if it is not known yet.
  double microseconds() const;

 private:
  bool has_passed(cuda::Event event) const;

  cuda::Device* device_ = nullptr;
  cuda::Event start_ = nullptr;
  cuda::Event stop_ = nullptr;
  bool stopped_ = false;
};

}  // namespace syncfree::runtime
