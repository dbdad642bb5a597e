#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "runtime/clock_stamp.h"
#include "runtime/event_pair.h"
#include "runtime/own_call.h"
#include "runtime/timer_types.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

// Microseconds. An endless spin would hang the GPU; nothing that is timed needs a longer one.
constexpr double kLongestSpin = 10e6;

cuda::Stream stream_at(std::uint64_t handle) {
  return reinterpret_cast<cuda::Stream>(handle);
}

void spin(std::uint64_t stream, double microseconds) {
  if (!(microseconds >= 0 && microseconds <= kLongestSpin))
    throw py::value_error("spin takes 0 to " + std::to_string(static_cast<int>(kLongestSpin)) +
                          " microseconds, but got " + std::to_string(microseconds));
  const OwnCall own;
  cuda::Device::current().code().spin(stream_at(stream),
                                      static_cast<std::uint64_t>(std::llround(microseconds * 1e3)));
}

}  // namespace

void set_timer_error(const char* message) {
  PyObject* errors = PyImport_ImportModule("syncfree.errors");
  PyObject* type = errors == nullptr ? nullptr : PyObject_GetAttrString(errors, "TimerError");
  if (type != nullptr) PyErr_SetString(type, message);  // else the import's own error stands
  Py_XDECREF(type);
  Py_XDECREF(errors);
}

void add_event_types(py::module_& module) {
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const cuda::Error& caught) {
      set_timer_error(caught.what());
    }
  });
  module.def("cuda_status", &cuda::status,
             "Why no CUDA driver can be used here; empty if one can.");
  module.def("spin", &spin, py::arg("stream"), py::arg("microseconds"),
             py::call_guard<py::gil_scoped_release>(),
             "Keeps a stream of the current context busy for a time, at most ten seconds.");
  py::class_<EventPair>(module, "EventPair", "One stretch of a stream between two events.")
      .def(py::init())
      .def(
          "start", [](EventPair& pair, std::uint64_t stream) { pair.start(stream_at(stream)); },
          py::arg("stream"))
      .def(
          "stop", [](EventPair& pair, std::uint64_t stream) { pair.stop(stream_at(stream)); },
          py::arg("stream"))
      .def("ready", &EventPair::ready, "Whether both events have passed. Never waits.")
      .def("microseconds", &EventPair::microseconds, "GPU time between them.");
  py::class_<ClockStamp>(module, "ClockStamp",
                         "The GPU's time and one SM's cycle counter at a point of a stream.")
      .def(py::init())
      .def(
          "record",
          [](ClockStamp& stamp, std::uint64_t stream) { stamp.record(stream_at(stream)); },
          py::arg("stream"))
      .def("ready", &ClockStamp::ready, "Whether the stamp has arrived. Never waits.")
      .def(
          "read",
          [](const ClockStamp& stamp) {
            return std::pair(stamp.read().nanoseconds, stamp.read().cycles);
          },
          "(%globaltimer in nanoseconds, %clock64 in cycles).")
      .def(
          "mhz_since",
          [](const ClockStamp& stamp, const ClockStamp& earlier) -> std::optional<double> {
            const double mhz = cuda::effective_mhz(earlier.read(), stamp.read());
            return std::isnan(mhz) ? std::nullopt : std::optional(mhz);
          },
          py::arg("earlier"),
          "The clock between two stamps in MHz; None if they are of different SMs or closer than "
          "50 us.");
}

}  // namespace syncfree::runtime
