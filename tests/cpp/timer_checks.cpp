// What a timer says before it knows anything, at its limits, and of regions that are replayed; by
// tests/fake_libcuda.cpp.
#include <syncfree/syncfree.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "checks.h"
#include "fake_driver.h"

namespace {

using namespace syncfree;

const auto kOn = reinterpret_cast<Stream>(kStream);

void before_any_region_has_passed() {
  Status status;
  for (const auto type : {Device::Type::kCpu, Device::Type::kCuda}) {
    EventTimer timer(type, status);
    expect("a timer", status, StatusCode::kOk);
    auto region = timer.region("step", kOn);
    if (type == Device::Type::kCuda) {
      work(100);
      expect("ended, not passed", region.end(), StatusCode::kOk);
    }
    const RegionSummary none = timer.summary().at(0);
    check("no count", none.count == 0 && none.total_us == 0);
    check("nothing is known", std::isnan(none.least_us) && std::isnan(none.median_us));
    check("in words", none.verdict() == "no region has passed yet");

    expect("end", region.end(), StatusCode::kOk);
    expect("wait", timer.wait(), StatusCode::kOk);
    const RegionSummary one = timer.summary().at(0);
    check("counted", one.count == 1 && one.least_us == one.median_us && one.least_us >= 0);
    check("a verdict", !has(one.verdict(), "no region"));
  }
}

void limits() {
  syncfree_timer* timer = nullptr;
  syncfree_region* region = nullptr;
  syncfree_timer_options options{2, 1, SYNCFREE_CPU};
  expect("on the CPU", detail::status_of(syncfree_timer_create(&options, &timer)), StatusCode::kOk);
  const auto begin = [&](const char* name) {
    return detail::status_of(syncfree_timer_begin(timer, name, 0, kOn, &region));
  };
  const auto end = [&](syncfree_region* each) {
    return detail::status_of(syncfree_timer_end(timer, each));
  };
  Status status;
  for (int i = 0; i < 4096 && status.ok(); ++i) {
    status = begin(("step " + std::to_string(i)).c_str());
    if (status.ok()) status = end(region);
  }
  expect("4096 names", status, StatusCode::kOk);
  expect("one more", begin("one more"), StatusCode::kInvalidArgument, "4096 names at most");
  check("is counted", region == nullptr && syncfree_timer_untimed(timer) == 1);
  syncfree_timer_destroy(timer);

  options.device_type = SYNCFREE_CUDA;
  expect("on CUDA", detail::status_of(syncfree_timer_create(&options, &timer)), StatusCode::kOk);
  syncfree_region* open[2] = {};
  for (syncfree_region*& each : open) {
    expect("begin", begin("open"), StatusCode::kOk);
    each = region;
  }
  expect("all slots are open", begin("open"), StatusCode::kInvalidArgument,
         "with a larger `regions_in_flight`");
  for (syncfree_region* each : open) expect("end", end(each), StatusCode::kOk);
  check("is counted, too", syncfree_timer_untimed(timer) == 1);
  expect("no device", detail::status_of(syncfree_timer_begin(timer, "r", -1, kOn, &region)),
         StatusCode::kWrongDevice, "-1");
  check("and so is that", syncfree_timer_untimed(timer) == 2);
  syncfree_timer_destroy(timer);
}

void creation_that_fails() {
  const auto somewhere = reinterpret_cast<syncfree_timer*>(kStream);
  const syncfree_timer_options none{0, 1, SYNCFREE_CPU};
  for (const syncfree_timer_options* options : {&none, static_cast<decltype(&none)>(nullptr)}) {
    syncfree_timer* timer = somewhere;
    expect("options", detail::status_of(syncfree_timer_create(options, &timer)),
           StatusCode::kInvalidArgument);
    check("no timer", timer == nullptr);
  }
  expect("nowhere to put it", detail::status_of(syncfree_timer_create(&none, nullptr)),
         StatusCode::kInvalidArgument, "timer");
}

// Regions without work take the fake GPU no time, so the GPU always waits for the host's launches.
void replays() {
  Status status;
  EventTimer timer(Device::Type::kCuda, status);
  expect("a timer", status, StatusCode::kOk);
  const auto share = [&] { return timer.summary().at(0).launch_bound_share; };
  for (int i = 0; i < 3; ++i) {
    const auto region = timer.region("step", kOn);
  }
  pass(1);
  check("three of three", share() == 1);
  constexpr std::uint64_t kCaptured = 0x77;
  fake<void(std::uint64_t)>("fake_begin_capture")(kCaptured);
  {
    const auto region = timer.region("step", reinterpret_cast<Stream>(kCaptured));
  }
  fake<void(std::uint64_t)>("fake_end_capture")(kCaptured);
  for (const double expected : {1.0, 1.0, 1.0, 0.0, 0.0}) {  // from the fourth on, replays are more
    fake<void(std::uint64_t, std::uint64_t)>("fake_replay")(kCaptured, kStream);
    pass(10);
    check("replays are judged apart", share() == expected);
  }
  check("all were counted", timer.summary().at(0).count == 8);
}

}  // namespace

int main() {
  before_any_region_has_passed();
  limits();
  creation_that_fails();
  replays();
  return report();
}
