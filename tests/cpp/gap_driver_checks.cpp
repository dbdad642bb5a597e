// The sweep over idle gaps on CUDA, by tests/fake_libcuda.cpp, which SYNCFREE_LIBCUDA names.
#include <syncfree/syncfree.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "checks.h"
#include "fake_driver.h"

namespace {

using namespace syncfree;

// A call that waits until its work is done, as cudaStreamSynchronize would.
void wait() {
  const auto until = fake<std::int64_t(std::uint64_t)>("fake_busy_until")(kStream);
  const std::int64_t left = until - fake<std::int64_t()>("fake_now")();
  if (left > 0) fake<void(std::int64_t)>("fake_pass")(left);
}

IdleGapOptions on_fake() {
  IdleGapOptions options;
  options.stream = reinterpret_cast<Stream>(kStream);
  options.gaps = {0, 0.001};
  options.repeats = 3;
  options.longest_warm_up = 0;
  return options;
}

template <class Body>
IdleGap on_gpu(Body&& body, const IdleGapOptions& options = on_fake()) {
  IdleGap sweep;
  expect("a sweep on CUDA", idle_gap(body, options, sweep), StatusCode::kOk);
  check("two points", sweep.points.size() == 2 && sweep.kind == Device::Type::kCuda);
  return sweep;
}

// The fake's time passes only where something waits, so every figure of the GPU is exact.
void sweeps() {
  for (const double us : {80.0, 9.0}) {  // also of a call too short for stamps around it
    const IdleGap sweep = on_gpu([&] { work(us); });
    check("device", sweep.device == "a GPU of the tests" && sweep.not_gateable.empty());
    for (const GapPoint& each : sweep.points)
      check("exact", near(each.plain_us, us) && near(each.gated_us, us) && each.host_us > 0 &&
                         near(each.megahertz, 1980) && each.n == 3);
    check("verdict", sweep.verdict().cause == "none");
    check("allocations", has(sweep.text(), "note: nobody counted allocations"));
  }
  const IdleGap waiting = on_gpu([] {
    work(50);
    wait();
  });
  check("waits", has(waiting.not_gateable, "the call waits for the GPU"));
  for (const GapPoint& each : waiting.points)
    check("plain alone", near(each.plain_us, 50) && std::isnan(each.gated_us));

  // Every tenth call the host is held up for longer than any gate: such a sample does not count.
  int calls = 0;
  const IdleGap held_up = on_gpu([&] {
    work(80);
    if (++calls % 10 == 0) pass(2 * SYNCFREE_LONGEST_GATE_US);
  });
  check("gateable", held_up.not_gateable.empty());
  for (const GapPoint& each : held_up.points) check("discarded", near(each.gated_us, 80));

  // The host is slower than the first gates are long.
  const IdleGap slow = on_gpu([] {
    pass(1000);
    work(80);
  });
  check("gates grow", slow.not_gateable.empty());
  for (const GapPoint& each : slow.points)
    check("launch-bound", near(each.plain_us, 1080) && near(each.gated_us, 80));
  check("said of calls back to back", has(slow.verdict().text, "1.08 ms for 80 us of work"));

  // Memory is asked for in the first call after a gap, which the host then takes long for.
  std::int64_t count = 0;
  IdleGapOptions options = on_fake();
  options.device_allocations = [&] { return count; };
  const IdleGap counted = on_gpu(
      [&] {
        ++count;
        work(80);
      },
      options);
  check("counted", counted.points[1].device_allocations == 1 && counted.notes.size() == 1);
}

void leaves_nothing() {
  (void)on_gpu([] { work(80); });
  const long events = fake<long()>("fake_events")(), pinned = called("cuMemHostAlloc");
  for (int last = 1; last < 60; ++last) {
    IdleGap sweep;
    int left = last;
    bool thrown = false;
    try {
      (void)idle_gap(
          [&] {
            work(80);
            if (--left == 0) throw std::runtime_error("out of batches");
          },
          on_fake(), sweep);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    check("thrown through, in front of a gate or behind it", thrown && sweep.points.empty());
  }
  const IdleGap again = on_gpu([] { work(80); });
  check("as if nothing had been", near(again.points[1].gated_us, 80));
  check("no event and no memory is lost",
        fake<long()>("fake_events")() == events && called("cuMemHostAlloc") == pinned);

  fake<void(std::uint64_t)>("fake_set_context")(0x200);  // another device's
  IdleGap sweep;
  const long pushed = called("cuCtxPushCurrent_v2");
  int calls = 0;
  expect("in its own context",
         idle_gap(
             [&] {
               ++calls;
               check("not the body's", fake<std::uint64_t()>("fake_context")() == 0x200);
             },
             on_fake(), sweep),
         StatusCode::kOk);
  check("before and behind each timed call",
        called("cuCtxPushCurrent_v2") - pushed >= 2 * (calls - detail::kFirstCalls));
  check("the program's is current again",
        fake<std::uint64_t()>("fake_context")() == 0x200 &&
            called("cuCtxPushCurrent_v2") == called("cuCtxPopCurrent_v2"));
}

void failing_calls() {
  IdleGap sweep;
  const auto run = [&](const IdleGapOptions& options) {
    return idle_gap([] { work(80); }, options, sweep);
  };
  IdleGapOptions elsewhere = on_fake();
  elsewhere.device = Device::cuda(9);
  expect("no such GPU", run(elsewhere), StatusCode::kCudaError, "cuDeviceGet");
  elsewhere.device = Device::cuda(-1);
  expect("no GPU's index", run(elsewhere), StatusCode::kWrongDevice, "-1");
  fake<void(std::uint64_t)>("fake_begin_capture")(kStream);
  expect("under capture", run(on_fake()), StatusCode::kInvalidArgument, "graph is being captured");
  fake<void(std::uint64_t)>("fake_end_capture")(kStream);

  const auto invalid = StatusCode::kInvalidArgument;
  const auto stream = reinterpret_cast<Stream>(kStream);
  syncfree_probe* probe = nullptr;
  syncfree_probe_times times{};
  expect("nowhere to put it", detail::status_of(syncfree_probe_create(0, stream, nullptr)), invalid,
         "probe");
  expect("a probe", detail::status_of(syncfree_probe_create(0, stream, &probe)), StatusCode::kOk);
  expect("end before begin", detail::status_of(syncfree_probe_end(probe, &times)), invalid,
         "syncfree_probe_begin");
  for (const double gate : {-1.0, std::nan(""), 2 * SYNCFREE_LONGEST_GATE_US})
    expect("gate", detail::status_of(syncfree_probe_begin(probe, gate)), invalid, "gate_us");
  expect("no probe", detail::status_of(syncfree_probe_begin(nullptr, 0)), invalid, "probe");
  expect("begin", detail::status_of(syncfree_probe_begin(probe, 0)), StatusCode::kOk);
  expect("no times", detail::status_of(syncfree_probe_end(probe, nullptr)), invalid, "times");
  expect("end", detail::status_of(syncfree_probe_end(probe, &times)), StatusCode::kOk);
  check("without a gate", times.us == 0 && times.gate_held == 1 && std::isnan(times.megahertz));
  syncfree_probe_destroy(probe);
  syncfree_probe_destroy(nullptr);

  int left = 30;
  expect("a launch that fails",
         idle_gap(
             [&] {
               if (--left == 0) fake<void(int)>("fake_fail")(719);
             },
             on_fake(), sweep),
         StatusCode::kCudaError, "CUDA_ERROR_LAUNCH_FAILED");
  check("nothing was written to it", sweep.points.empty() && sweep.device.empty());
}

}  // namespace

int main() {
  sweeps();
  leaves_nothing();
  failing_calls();
  return report();
}
