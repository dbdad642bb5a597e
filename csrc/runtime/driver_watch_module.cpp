#include "runtime/driver_watch_module.h"

#include <dlfcn.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/driver_watch.h"
#include "runtime/frame_objects.h"
#include "runtime/own_call.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

const char* word(CallKind kind) {
  constexpr const char* kWords[] = {"none",  "wait",     "copy",     "async copy", "peer copy",
                                    "fill",  "allocate", "register", "release",    "load",
                                    "graph", "context",  "query",    "launch"};
  return kWords[static_cast<int>(kind)];
}

const char* word(HostMemory kind) {
  constexpr const char* kWords[] = {"unknown", "pinned", "pageable", "device", "managed"};
  return kWords[static_cast<int>(kind)];
}

std::optional<std::string> word(Direction direction) {
  if (direction == Direction::kToHost) return "d2h";
  if (direction == Direction::kToDevice) return "h2d";
  return std::nullopt;
}

// A site with texts instead of numbers.
struct Place {
  py::object frames = py::tuple(), operators = py::tuple(), addresses = py::tuple();
  py::object forward = py::none();
  bool is_backward = false;
};

// A record with names instead of numbers.
struct DriverCall {
  std::int32_t thread;
  std::string thread_name;
  std::uint64_t place;
  Place at;
  CallRecord record;
  std::string api, runtime, copy_api;
};

// The watch, and the sites that it has already described for Python.
class PyWatch {
 public:
  // The watch outlives this object, as callbacks may come late.
  PyWatch(std::uintptr_t cupti, std::uintptr_t driver)
      : watch_(new DriverWatch(reinterpret_cast<void*>(cupti), reinterpret_cast<void*>(driver))) {}

  std::tuple<int, std::string, std::string> start() {
    places_.clear();
    std::string holder;
    int result = 0;
    {
      const py::gil_scoped_release no_gil;
      result = watch_->start(holder);
    }
    return {result, result == kCuptiSuccess ? "" : watch_->word(result), holder};
  }

  std::vector<DriverCall> drain() {
    std::vector<DriverCall> calls;
    std::vector<CallRecord> records(256);
    std::uint64_t number = 0;
    for (ThreadLog& thread : watch_->logs().all()) {
      ++number;
      // Read before the last record: if the thread has ended, nothing can come after that.
      const bool has_ended = thread.state.load(std::memory_order_acquire) == ThreadLog::kEnded;
      // What a busy thread adds meanwhile is left for the next time.
      std::size_t left = thread.log.size();
      while (left > 0) {
        const std::size_t count = thread.log.pop(records.data(), std::min(left, records.size()));
        for (std::size_t i = 0; i < count; ++i) calls.push_back(named(thread, number, records[i]));
        left -= count;
      }
      if (has_ended) watch_->logs().give_back(thread);
    }
    return calls;
  }

  DriverWatch& operator*() const { return *watch_; }
  DriverWatch* operator->() const { return watch_; }

 private:
  DriverCall named(ThreadLog& thread, std::uint64_t number, const CallRecord& record) {
    DriverCall call;
    call.thread = thread.native_id;
    call.thread_name = thread.name;
    call.record = record;
    call.api = plain_name(watch_->driver_name(record.driver_id));
    if (record.runtime_id != 0) call.runtime = plain_name(watch_->runtime_name(record.runtime_id));
    if (record.copy_driver_id != 0) {
      call.copy_api =
          plain_name(record.copy_runtime_id != 0 ? watch_->runtime_name(record.copy_runtime_id)
                                                 : watch_->driver_name(record.copy_driver_id));
    }
    call.place = 0;
    if (record.site == kNoSite) return call;
    const std::uint64_t owner = thread.owners.load(std::memory_order_relaxed);
    call.place = owner << 32 | number << 16 | static_cast<std::uint64_t>(record.site);
    auto [place, is_new] = places_.try_emplace(call.place);
    if (is_new) place->second = described(thread.log, record.site);
    call.at = place->second;
    return call;
  }

  static Place described(const CallLog& log, std::int32_t index) {
    const CallSite& site = log.site(index);
    py::tuple frames(site.frames), operators(site.operators), addresses(site.addresses);
    for (std::size_t i = 0; i < site.frames; ++i) frames[i] = as_tuple(log.frame(site.frame[i]));
    for (std::size_t i = 0; i < site.operators; ++i)
      operators[i] = as_text(log.operator_name(site.op[i]), "replace");
    for (std::size_t i = 0; i < site.addresses; ++i)
      addresses[i] = reinterpret_cast<std::uintptr_t>(site.address[i]);
    Place place{frames, operators, addresses};
    if (site.forward != kNoRoom) place.forward = as_tuple(log.frame(site.forward));
    place.is_backward = site.is_backward;
    return place;
  }

  DriverWatch* watch_;
  std::unordered_map<std::uint64_t, Place> places_;
};

// For each return address, the file of its library and the function, as far as they are known.
std::vector<std::pair<std::string, std::string>> symbols(
    const std::vector<std::uintptr_t>& addresses) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::uintptr_t address : addresses) {
    Dl_info info;
    // A return address may be one past the end of the function that called.
    const bool known = dladdr(reinterpret_cast<void*>(address - 1), &info) != 0;
    found.emplace_back(known && info.dli_fname != nullptr ? info.dli_fname : "",
                       known && info.dli_sname != nullptr ? info.dli_sname : "");
  }
  return found;
}

struct OwnCalls {};

}  // namespace

void bind_driver_watch(py::module_& module) {
  const auto field = [](auto member) {
    return [member](const DriverCall& call) { return call.record.*member; };
  };
  const auto at = [](auto member) {
    return [member](const DriverCall& call) { return call.at.*member; };
  };
  py::class_<DriverCall>(module, "DriverCall", "A call of the driver that waited, or may have.")
      .def_readonly("thread", &DriverCall::thread)
      .def_readonly("thread_name", &DriverCall::thread_name)
      .def_readonly("place", &DriverCall::place)
      .def_property_readonly("frames", at(&Place::frames))
      .def_property_readonly("operators", at(&Place::operators))
      .def_property_readonly("forward", at(&Place::forward))
      .def_property_readonly("is_backward", at(&Place::is_backward))
      .def_property_readonly("addresses", at(&Place::addresses))
      .def_readonly("api", &DriverCall::api)
      .def_readonly("runtime", &DriverCall::runtime)
      .def_readonly("copy_api", &DriverCall::copy_api)
      .def_property_readonly("kind", [](const DriverCall& call) { return word(call.record.kind); })
      .def_property_readonly("host_memory",
                             [](const DriverCall& call) { return word(call.record.host); })
      .def_property_readonly(
          "direction", [](const DriverCall& call) { return word(call.record.arguments.direction); })
      .def_property_readonly("bytes",
                             [](const DriverCall& call) { return call.record.arguments.bytes; })
      .def_property_readonly("to", [](const DriverCall& call) { return call.record.arguments.to; })
      .def_property_readonly("source",
                             [](const DriverCall& call) { return call.record.arguments.from; })
      .def_property_readonly("context",
                             [](const DriverCall& call) {
                               return reinterpret_cast<std::uintptr_t>(call.record.context);
                             })
      .def_property_readonly("enter_ns", field(&CallRecord::enter_ns))
      .def_property_readonly("exit_ns", field(&CallRecord::exit_ns))
      .def_property_readonly("queries", field(&CallRecord::queries))
      .def_property_readonly("copy_was_recorded", field(&CallRecord::copy_was_recorded))
      .def_property_readonly("outlasted_gpu", [](const DriverCall& call) -> std::optional<bool> {
        if (call.record.pending_before == 0) return std::nullopt;
        return call.record.outlasted_gpu();
      });

  py::class_<PyWatch>(module, "DriverWatch", "Hears of the driver's calls through CUPTI.")
      .def(py::init<std::uintptr_t, std::uintptr_t>(), py::arg("cupti"), py::arg("driver"))
      .def("start", &PyWatch::start)
      .def(
          "stop", [](PyWatch& watch) { watch->stop(); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "sleep", [](PyWatch& watch) { watch->sleep(); }, py::call_guard<py::gil_scoped_release>())
      .def("wake", [](PyWatch& watch) { watch->wake(); })
      .def("drain", &PyWatch::drain)
      .def_property_readonly("is_active", [](PyWatch& watch) { return watch->is_active(); })
      .def_property_readonly("lost", [](PyWatch& watch) { return watch->lost(); })
      .def(
          "names",
          [](PyWatch& watch, bool runtime) {
            return watch->names(runtime ? CuptiDomain::kRuntime : CuptiDomain::kDriver);
          },
          py::arg("runtime") = false)
      .def(
          "memory_kind",
          [](PyWatch& watch, std::uint64_t address, std::uintptr_t context, bool is_host) {
            return word(watch->memory_kind(address, reinterpret_cast<void*>(context), is_host));
          },
          py::arg("address"), py::arg("context"), py::arg("is_host"),
          py::call_guard<py::gil_scoped_release>())
      .def(
          "use_marks",
          [](PyWatch& watch, std::uintptr_t words) {
            watch->use_marks(reinterpret_cast<void*>(words));
          },
          py::arg("words"))
      .def(
          "put_mark",
          [](PyWatch& watch, std::uintptr_t stream) {
            return watch->marks().put(reinterpret_cast<void*>(stream));
          },
          py::arg("stream"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("marks_pending",
                             [](PyWatch& watch) { return watch->marks().pending(); })
      .def_property_readonly_static("mark_bytes", [](py::object) { return GpuMarks::kBytes; });

  py::class_<OwnCalls>(module, "OwnCalls",
                       "Inside, driver calls of this thread are syncfree's own and not watched.")
      .def(py::init<>())
      .def("__enter__", [](OwnCalls&) { ++own_call_depth; })
      .def("__exit__", [](OwnCalls&, py::args) { --own_call_depth; });
  module.def("symbols", &symbols, py::arg("addresses"),
             "(library, function) of return addresses; empty texts where they are not known.");
}

}  // namespace syncfree::runtime
