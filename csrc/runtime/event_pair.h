// One stretch of a stream between two events, for callers that keep their own order.
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

  // Whether the first is complete; false before `start`. Never waits.
  bool started() const;
  // Whether both are complete; false before `stop`. Never waits.
  bool ready() const;
  // GPU time from one to the other; throws cuda::Error if it is not known yet.
  double microseconds() const;

 private:
  bool has_passed(cuda::Event event) const;

  cuda::Device* device_ = nullptr;
  cuda::Event start_ = nullptr;
  cuda::Event stop_ = nullptr;
  bool stopped_ = false;
};

}  // namespace syncfree::runtime
