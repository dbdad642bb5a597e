// The Python module syncfree._runtime: host objects that need no torch.
#include <pybind11/pybind11.h>

#include <thread>
#include <vector>

#include "core/isa.h"
#include "runtime/build_info.h"
#include "runtime/call_places.h"
#include "runtime/captured_stack.h"
#include "runtime/driver_watch_module.h"
#include "runtime/frame_objects.h"
#include "runtime/metric_checks.h"
#include "runtime/operators_module.h"
#include "runtime/python_stack.h"
#include "runtime/timer_types.h"

namespace py = pybind11;

namespace {

using syncfree::runtime::CapturedFrame;

// Like a callback of the driver, copies the frames while this thread does not hold the GIL.
py::list python_stack(std::size_t most, bool in_thread_of_its_own) {
  std::vector<CapturedFrame> frames(most);
  std::size_t count = 0;
  {
    const py::gil_scoped_release no_gil;
    const auto capture = [&] {
      count = syncfree::runtime::capture_python_stack(frames.data(), most);
    };
    if (in_thread_of_its_own)
      std::thread(capture).join();
    else
      capture();
  }
  py::list result;
  for (std::size_t i = 0; i < count; ++i) result.append(syncfree::runtime::as_tuple(frames[i]));
  return result;
}

}  // namespace

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "Host side of syncfree: build information, Python stacks without the GIL, timing.";
  module.def(
      "build_info",
      [] {
        py::dict info;
        info["torch"] = syncfree::kTorchVersion;
        info["torch_cuda"] = syncfree::kTorchCudaVersion;
        info["cuda"] = syncfree::kCudaVersion;
        info["cuda_architectures"] = syncfree::kCudaArchitectures;
        info["compiler"] = syncfree::kCompiler;
        info["build_type"] = syncfree::kBuildType;
        info["git_revision"] = syncfree::kGitRevision;
        return info;
      },
      "What this build was made with; empty strings for parts it does not have.");
  module.def("can_walk_python_stack", &syncfree::runtime::can_walk_python_stack,
             "Whether the frames of this Python version can be read without the GIL.");
  module.def("python_stack", &python_stack, py::arg("most") = 64,
             py::arg("in_thread_of_its_own") = false,
             "(file, line, function) of the callers, innermost first, read without the GIL.");
  module.def(
      "instruction_set", [] { return syncfree::isa_name(syncfree::active_isa()); },
      "The instruction set that the CPU kernels use: 'baseline', 'avx2' or 'avx512'.");
  syncfree::runtime::add_call_places_type(module);
  syncfree::runtime::add_metric_checks(module);
  syncfree::runtime::bind_operators(module);
  syncfree::runtime::bind_driver_watch(module);
  syncfree::runtime::add_event_types(module);
  syncfree::runtime::add_region_types(module);
}
