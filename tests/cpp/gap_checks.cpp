// The sweep over idle gaps without a GPU or its driver: order and causes by a probe that knows the
// truth, the CPU, wrong options. With the argument "verdicts": sweeps of the points on the standard
// input, for a comparison with Python's.
#include <syncfree/syncfree.h>

#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks.h"

namespace {

using namespace syncfree;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Each line: kind, reason against a gate or "-", number of points, and their fields; "nan" for
// None. Prints the text as a JSON string, and the document.
int verdicts() {
  const auto number = [] {
    std::string word;
    std::cin >> word;
    return std::strtod(word.c_str(), nullptr);
  };
  std::string kind, reason;
  std::size_t count = 0;
  while (std::cin >> kind >> reason >> count) {
    IdleGap sweep;
    sweep.name = "step \"1\"\n";
    sweep.device = "a \\ GPU";
    sweep.kind = kind == "cpu" ? Device::Type::kCpu : Device::Type::kCuda;
    if (reason != "-") sweep.not_gateable = reason;
    sweep.notes = {"first", "second"};
    for (std::size_t i = 0; i < count; ++i) {
      GapPoint each;
      for (double* field : {&each.gap, &each.plain_us, &each.plain_mad_us, &each.host_us,
                            &each.gated_us, &each.megahertz, &each.device_allocations})
        *field = number();
      each.n = static_cast<int>(number());
      sweep.points.push_back(each);
    }
    std::printf("%s\n%s", detail::json_text(sweep.text()).c_str(), sweep.json().c_str());
  }
  return 0;
}

// Writes down what is asked of it and answers with what it is told.
struct KnownProbe final : detail::GapProbe {
  struct Call {
    bool gated;
    double pause;
  };

  Status prepare(std::string& not_gateable) override {
    not_gateable = reason;
    return {};
  }
  Status sample(bool gated, double pause, detail::GapSample& taken) override {
    if (static_cast<int>(calls.size()) == failing)
      return {StatusCode::kCudaError, "The GPU is gone."};
    calls.push_back({gated, pause});
    taken = answer(gated, pause);
    return {};
  }

  std::function<detail::GapSample(bool, double)> answer;
  std::string reason;
  int failing = -1;
  std::vector<Call> calls;
};

IdleGap swept(KnownProbe& probe, StatusCode code = StatusCode::kOk) {
  IdleGap found;
  found.kind = Device::Type::kCuda;
  expect("sweep", detail::sweep(probe, {1.0, 0.01, 1.0}, 3, 0.0, found), code);
  return found;
}

std::string cause_of(const std::function<detail::GapSample(bool, double)>& answer,
                     const std::string& reason = {}) {
  KnownProbe probe;
  probe.answer = answer;
  probe.reason = reason;
  return swept(probe).verdict().cause;
}

void order() {
  KnownProbe probe;
  probe.answer = [](bool gated, double pause) {
    detail::GapSample taken;
    taken.us = (gated ? 90 : 100) + pause;
    taken.host_us = 20;
    taken.megahertz = gated ? 1980 : kNone;
    return taken;
  };
  const IdleGap found = swept(probe);
  check("each gap once, the shortest first", found.points.size() == 3 && found.points[0].gap == 0 &&
                                                 found.points[1].gap == 0.01 &&
                                                 found.points[2].gap == 1);
  check("medians", near(found.points[2].plain_us, 101) && near(found.points[2].gated_us, 91) &&
                       found.points[2].plain_mad_us == 0 && found.points[2].host_us == 20 &&
                       found.points[2].megahertz == 1980 && found.points[2].n == 3 &&
                       std::isnan(found.points[2].device_allocations));
  // Three turns of: 16 + 1 back to back, two gaps; of each kind.
  check("calls", probe.calls.size() == 3 * 2 * (17 + 2));
  std::vector<double> pauses;
  for (const KnownProbe::Call& call : probe.calls)
    if (call.pause > 0 && !call.gated) pauses.push_back(call.pause);
  check("in turn", pauses == std::vector<double>({0.01, 1, 0.01, 1, 1, 0.01}));
  check("no warm-up is told of", found.notes.size() == 1 && has(found.notes[0], "limit of 0 s"));
}

void causes() {
  using Sample = detail::GapSample;
  const auto after = [](double pause) { return pause >= 1; };
  check("none", cause_of([](bool, double) { return Sample{100, 20, 1980}; }) == "none");
  check("host launch", cause_of([&](bool gated, double pause) {
                         return after(pause) && !gated ? Sample{550, 530} : Sample{100, 95};
                       }) == "host launch");
  check("allocator", cause_of([&](bool gated, double pause) {
                       return after(pause) && !gated ? Sample{550, 530, kNone, 2}
                                                     : Sample{100, 95, kNone, 0};
                     }) == "allocator");
  check("clock ramp", cause_of([&](bool, double pause) {
                        return after(pause) ? Sample{200, 20, 990} : Sample{100, 20, 1980};
                      }) == "clock ramp");
  check("memory", cause_of([&](bool, double pause) {
                    return after(pause) ? Sample{200, 20, 1980} : Sample{100, 20, 1980};
                  }) == "memory");
  const auto slow = [&](bool, double pause) {
    return after(pause) ? Sample{200, 20} : Sample{100, 20};
  };
  check("waits", cause_of(slow, "it waits") == "waits");
  check("a gate that never holds", cause_of([&](bool gated, double pause) {
                                     Sample taken = slow(gated, pause);
                                     taken.gate_held = false;
                                     return taken;
                                   }) == "waits");
  KnownProbe probe;
  probe.answer = slow;
  probe.reason = "it waits";
  swept(probe);
  for (const KnownProbe::Call& call : probe.calls) check("no gate", !call.gated);
  probe.failing = 60;
  check("what fails is told, with nothing half done",
        swept(probe, StatusCode::kCudaError).points.empty());
  IdleGap nothing;
  check("nothing measured", nothing.verdict().cause == "none" && has(nothing.text(), "nothing"));
}

void statistics() {
  using detail::drift;
  check("median", detail::median({3, 1, 2}) == 2 && detail::median({4, 1, 2, 3}) == 2.5);
  check("median of none", std::isnan(detail::median({})));
  check("mad", detail::mad({1, 2, 3, 4, 1000}) == 1 && detail::mad({7}) == 0);
  std::vector<double> times(15, 100.0);
  check("too few", std::isnan(drift(times)));
  times.push_back(100);
  check("flat", drift(times) == 0);
  std::fill(times.begin() + 8, times.end(), 110.0);
  check("up by a tenth", near(drift(times), 0.1));
}

void settling() {
  KnownProbe probe;
  probe.answer = [](bool, double) { return detail::GapSample{100, 20}; };
  std::vector<std::string> notes;
  expect("settled", detail::warm_up(probe, true, 1e9, notes), StatusCode::kOk);
  check("without a note", notes.empty() && probe.calls.size() > 2 * detail::kLeastWindow);
  double us = 1;
  probe.answer = [&](bool, double) { return detail::GapSample{us += 1, 20}; };
  expect("at its limit", detail::warm_up(probe, true, 0.5, notes), StatusCode::kOk);
  check("with a note",
        notes.size() == 1 && has(notes[0], "at its limit of 0.5 s with a drift of +"));
}

IdleGapOptions on_cpu() {
  IdleGapOptions options;
  options.device = Device::cpu();
  options.gaps = {0.002, 0.001};
  options.repeats = 3;
  options.longest_warm_up = 0.01;
  options.name = "sum";
  return options;
}

void cpu() {
  int calls = 0;
  IdleGap sweep;
  expect("on the CPU", idle_gap([&] { return ++calls; }, on_cpu(), sweep), StatusCode::kOk);
  check("points", sweep.points.size() == 3 && sweep.points[0].gap == 0 &&
                      sweep.points[1].gap == 0.001 && sweep.points[2].gap == 0.002);
  for (const GapPoint& each : sweep.points)
    check("figures", each.plain_us > 0 && each.host_us == each.plain_us && each.n == 3 &&
                         std::isnan(each.gated_us) && std::isnan(each.megahertz));
  check("it was called", calls > 3 * 3);
  check("kind", sweep.kind == Device::Type::kCpu && !sweep.device.empty() &&
                    sweep.not_gateable.empty() && has(sweep.text(), "back to back"));
  const std::string cause = sweep.verdict().cause;
  check("cause", cause == "none" || cause == "cpu" || cause == "unexplained");

  IdleGapOptions cold = on_cpu();
  cold.longest_warm_up = 0;
  calls = 0;
  expect("no warm-up", idle_gap([&] { return ++calls; }, cold, sweep), StatusCode::kOk);
  // The first, and three turns of: 16 + 1 back to back, two gaps.
  check("single calls", calls == 1 + 3 * (17 + 2));

  // An exception leaves what there was, wherever it comes from.
  for (const int last : {1, 5, 40}) {
    int left = last;
    std::string caught;
    try {
      (void)idle_gap(
          [&] {
            if (--left == 0) throw std::runtime_error("out of batches");
          },
          on_cpu(), sweep);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    check("the body's exception", caught == "out of batches" && sweep.points.size() == 3);
  }
}

void options() {
  IdleGap sweep;
  const auto run = [&](const std::function<void(IdleGapOptions&)>& change) {
    IdleGapOptions all = on_cpu();
    change(all);
    return idle_gap([] {}, all, sweep);
  };
  const auto invalid = StatusCode::kInvalidArgument;
  expect("negative gap", run([](auto& o) { o.gaps = {1, -1}; }), invalid, "at least 0, but got -1");
  expect("endless gap", run([](auto& o) { o.gaps = {HUGE_VAL}; }), invalid, "inf");
  expect("no clock counts as far", run([](auto& o) { o.gaps = {0, 1e300}; }), invalid, "1e+300");
  expect("no number", run([](auto& o) { o.gaps = {kNone}; }), invalid, "gaps");
  expect("no repeats", run([](auto& o) { o.repeats = 0; }), invalid, "repeats");
  expect("warm-up", run([](auto& o) { o.longest_warm_up = -1; }), invalid, "longest_warm_up");
  expect("device", run([](auto& o) { o.device = {static_cast<Device::Type>(7), 0}; }), invalid,
         "device_type");
  expect("no driver", run([](auto& o) { o.device = Device::cuda(); }), StatusCode::kCudaError);
  check("nothing was written", sweep.points.empty() && sweep.device.empty());
  char name[4];
  expect("no name", detail::status_of(syncfree_device_name(SYNCFREE_CPU, 0, nullptr, 4)), invalid,
         "name");
  expect("no room", detail::status_of(syncfree_device_name(SYNCFREE_CPU, 0, name, 0)), invalid,
         "size");
  expect("short", detail::status_of(syncfree_device_name(SYNCFREE_CPU, 0, name, 4)),
         StatusCode::kOk);
  check("cut with its end", std::strlen(name) <= 3);
}

void locales() {
  check("digits", detail::digits(0.01, 6) == "0.01" && detail::json_number(0.1) == "0.1" &&
                      detail::json_number(1.0 / 3) == "0.3333333333333333" &&
                      detail::json_number(kNone) == "null");
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8"})
    if (std::setlocale(LC_ALL, name) != nullptr) {
      check(name, detail::digits(0.5, 3) == "0.5" && detail::json_number(1.25) == "1.25");
      std::setlocale(LC_ALL, "C");
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "verdicts") == 0) return verdicts();
  order();
  causes();
  statistics();
  settling();
  cpu();
  options();
  locales();
  return report();
}
