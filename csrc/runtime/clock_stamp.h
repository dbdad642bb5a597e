// The GPU's time and one SM's cycle counter at a point of a stream.
#pragma once

#include <utility>

#include "runtime/cuda_device.h"

namespace syncfree::runtime {

class ClockStamp {
 public:
  ClockStamp() = default;
  ~ClockStamp();
  ClockStamp(const ClockStamp&) = delete;
  ClockStamp& operator=(const ClockStamp&) = delete;

  // Launches the stamp kernel on a stream of the current context. A new stamp replaces the old one.
  void record(cuda::Stream stream);

  // Whether the last stamp has arrived. Never waits.
  bool ready() const;
  // Throws cuda::Error if it has not.
  const cuda::Stamp& read() const;

 private:
  cuda::Device* device_ = nullptr;
  cuda::StampPlace place_;
  std::uint32_t serial_ = 0;  // of the last stamp; 0 if there is none
};

}  // namespace syncfree::runtime
