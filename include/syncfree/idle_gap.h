// Why the first call after a pause is slow: a sweep over gaps, with and without a gate.
//
// A gap is a pause before a call. A gate is a kernel that spins for a bounded time while the host
// queues the call, so that the call's time on the GPU does not contain the host's launches.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "syncfree/idle_gap/probes.h"
#include "syncfree/idle_gap/result.h"
#include "syncfree/idle_gap/sweep.h"
#include "syncfree/launch.h"
#include "syncfree/status.h"
#include "syncfree/tensor_view.h"

namespace syncfree {

struct IdleGapOptions {
  // Pauses of up to 1e6 seconds; 0 stands for back to back and is added if it is missing.
  std::vector<double> gaps = {0.0, 0.01, 0.1, 1.0, 5.0};
  int repeats = 5;                 // calls of each kind after each gap; the medians are shown
  Device device = Device::cuda();  // or Device::cpu(), by the host's clock
  Stream stream = nullptr;         // on which the body queues its work
  std::string name = "call";
  // Returns how often memory was requested of the driver so far, if an allocator counts that.
  std::function<std::int64_t()> device_allocations = {};
  double longest_warm_up = 2.0;  // seconds
};

// Times the first `body()` after pauses, and says what makes it slow.
//
// After each gap the sweep times a call as it is (plain), and one behind a gate. If only the plain
// call is slow, the cause is the host; if both are slow, it is the GPU, and the clock beside them
// tells whether it ramps. The body queues work on `options.stream`, which must not be capturing a
// graph, and returns; work on other streams is timed only if that stream waits for it. A body that
// waits is detected, timed without a gate, and called not gateable.
//
// The sweep waits for the stream between calls. It takes about twice the sum of the gaps times
// `repeats`, plus the warm-up. Exceptions of the body pass through. `sweep` changes only if the
// status is ok. Other statuses are kInvalidArgument for options that make no sense, kWrongDevice,
// and kCudaError if there is no driver or a call to it failed.
//
//   IdleGap sweep;
//   Status status = idle_gap([&] { step(stream); }, options, sweep);
//   if (status.ok()) std::puts(sweep.text().c_str());
template <class Body>
Status idle_gap(Body&& body, const IdleGapOptions& options, IdleGap& sweep) {
  for (const double gap : options.gaps)
    if (!(gap >= 0 && gap <= detail::kLongestGap))
      return {StatusCode::kInvalidArgument, "Expected `gaps` to be numbers of seconds of at most " +
                                                detail::digits(detail::kLongestGap, 6) +
                                                " and at least 0, but got " +
                                                detail::digits(gap, 6) + "."};
  if (options.repeats < 1)
    return {StatusCode::kInvalidArgument, "Expected `repeats` to be at least 1, but got " +
                                              std::to_string(options.repeats) + "."};
  if (!(options.longest_warm_up >= 0 && std::isfinite(options.longest_warm_up)))
    return {StatusCode::kInvalidArgument,
            "Expected `longest_warm_up` to be a number of seconds of at least 0, but got " +
                detail::digits(options.longest_warm_up, 6) + "."};
  IdleGap found;
  found.name = options.name;
  found.kind = options.device.type;
  std::array<char, 256> device{};
  Status status = detail::status_of(
      syncfree_device_name(static_cast<std::int32_t>(options.device.type), options.device.index,
                           device.data(), static_cast<std::int64_t>(device.size())));
  if (!status.ok()) return status;
  found.device = device.data();

  const auto swept = [&](detail::GapProbe& probe) {
    return detail::sweep(probe, options.gaps, options.repeats, options.longest_warm_up, found);
  };
  if (options.device.type == Device::Type::kCpu) {
    detail::CpuGapProbe probe(std::ref(body));
    status = swept(probe);
  } else {
    detail::CudaGapProbe probe(std::ref(body), options.device_allocations);
    status = probe.open(options.device.index, options.stream);
    if (status.ok()) status = swept(probe);
    if (!options.device_allocations)
      found.notes.push_back(
          "nobody counted allocations of device memory, so the allocator cannot be told as a "
          "cause");
  }
  if (status.ok()) sweep = std::move(found);
  return status;
}

}  // namespace syncfree
