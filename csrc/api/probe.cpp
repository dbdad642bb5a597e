// syncfree_probe_*: times one call at a time between two events, as it is or behind a gate.
#include <cmath>
#include <cstdint>

#include "api/arguments.h"
#include "api/driver_failure.h"
#include "runtime/clock_stamp.h"
#include "runtime/cuda_device.h"
#include "runtime/event_pair.h"
#include "runtime/own_call.h"

using namespace syncfree;
using namespace syncfree::api;

struct syncfree_probe {
  syncfree_probe(runtime::cuda::Device& on, runtime::cuda::Stream of)
      : device(on), stream(of), drained(on.take_event()) {}
  ~syncfree_probe() { device.give_back(drained); }

  void drain() const {
    const runtime::cuda::Driver& driver = device.driver();
    const runtime::cuda::DuringCaptures allowed(driver);  // other threads may capture other streams
    driver.check(driver.event_record(drained, stream), "cuEventRecord");
    driver.check(driver.event_synchronize(drained), "cuEventSynchronize");
  }

  // The clock during the call, or during gate and call if the call is too short for the stamps.
  double megahertz() const {
    const double mhz = runtime::cuda::effective_mhz(opened.read(), passed.read());
    return std::isnan(mhz) ? runtime::cuda::effective_mhz(shut.read(), passed.read()) : mhz;
  }

  runtime::cuda::Device& device;
  const runtime::cuda::Stream stream;
  const runtime::cuda::Event drained;
  runtime::EventPair call;
  runtime::ClockStamp shut, opened, passed;  // before the gate, behind it, and behind the call
  bool begun = false;
  bool gated = false;
};

namespace {

void check_no_capture(const runtime::cuda::Driver& driver, runtime::cuda::Stream stream) {
  int state = runtime::cuda::kCaptureNone;
  const runtime::cuda::Result result = driver.stream_is_capturing(stream, &state);
  if (result != runtime::cuda::kCaptureImplicit) driver.check(result, "cuStreamIsCapturing");
  if (result == runtime::cuda::kCaptureImplicit || state != runtime::cuda::kCaptureNone)
    fail(SYNCFREE_INVALID_ARGUMENT,
         "Expected a stream that runs what is queued on it, but a graph is being captured.");
}

// Runs `body` in the context of the probe's device; its driver calls count as the library's own.
template <class Body>
syncfree_status_code with_probe(syncfree_probe* probe, Body&& body) noexcept {
  return guarded_by_driver([&] {
    required("probe", probe);
    const runtime::OwnCall own;
    const runtime::cuda::InContext here(probe->device.driver(), probe->device.context());
    body();
  });
}

}  // namespace

syncfree_status_code syncfree_probe_create(int32_t device_index, syncfree_stream stream,
                                           syncfree_probe** probe) {
  return guarded_by_driver([&] {
    required("probe", probe);
    *probe = nullptr;
    check_device_index(device_index);
    const runtime::OwnCall own;
    runtime::cuda::Device& device = runtime::cuda::Device::primary(device_index);
    const runtime::cuda::InContext here(device.driver(), device.context());
    const auto on = reinterpret_cast<runtime::cuda::Stream>(stream);
    check_no_capture(device.driver(), on);
    device.code();  // compiled and loaded now, not right before a timed call
    *probe = new syncfree_probe(device, on);
  });
}

void syncfree_probe_destroy(syncfree_probe* probe) {
  delete probe;
}

syncfree_status_code syncfree_probe_begin(syncfree_probe* probe, double gate_us) {
  return with_probe(probe, [&] {
    if (!(gate_us >= 0 && gate_us <= SYNCFREE_LONGEST_GATE_US))
      fail(SYNCFREE_INVALID_ARGUMENT, "Expected `gate_us` to be 0 to ", SYNCFREE_LONGEST_GATE_US,
           ", but got ", gate_us, ".");
    probe->begun = false;
    probe->gated = gate_us > 0;
    if (probe->gated) {
      probe->shut.record(probe->stream);
      probe->device.code().spin(probe->stream,
                                static_cast<std::uint64_t>(std::llround(gate_us * 1e3)));
      probe->opened.record(probe->stream);
    }
    probe->call.start(probe->stream);
    probe->begun = true;
  });
}

syncfree_status_code syncfree_probe_end(syncfree_probe* probe, syncfree_probe_times* times) {
  return with_probe(probe, [&] {
    required("times", times);
    if (!probe->begun)
      fail(SYNCFREE_INVALID_ARGUMENT,
           "Expected syncfree_probe_begin before syncfree_probe_end, but there was none.");
    probe->begun = false;
    probe->call.stop(probe->stream);
    // As long as the first event has not passed, no work of the call has begun, and all is queued.
    const bool held = !probe->gated || !probe->call.started();
    if (probe->gated) probe->passed.record(probe->stream);
    probe->drain();
    *times = {probe->call.microseconds(), probe->gated ? probe->megahertz() : std::nan(""), held};
  });
}
