#include "runtime/operators_module.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <utility>

#include "runtime/frame_objects.h"
#include "runtime/operators.h"

namespace py = pybind11;

namespace syncfree::runtime {
namespace {

PathBeginning beginning_of(const py::str& path) {
  const int width = static_cast<int>(PyUnicode_KIND(path.ptr()));
  const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(path.ptr()));
  return {{static_cast<const char*>(PyUnicode_DATA(path.ptr())), length * width}, width};
}

std::uintptr_t listen(const std::vector<py::str>& machinery) {
  std::vector<PathBeginning> beginnings;
  for (const py::str& each : machinery) beginnings.push_back(beginning_of(each));
  return reinterpret_cast<std::uintptr_t>(&listen_to_operators(std::move(beginnings)));
}

py::tuple running() {
  const RunningOperators running = running_operators();
  py::tuple names(running.count);
  for (std::size_t i = 0; i < running.count; ++i) names[i] = as_text(*running.name[i], "replace");
  const py::object forward =
      running.forward == nullptr ? py::object(py::none()) : as_tuple(*running.forward);
  return py::make_tuple(names, forward, running.is_backward);
}

}  // namespace

void bind_operators(py::module_& module) {
  module.def("listen_to_operators", &listen, py::arg("machinery"),
             "Forgets what was noted before; returns the address of the functions to be told.");
  module.def("running_operators", &running,
             "Of this thread: the operators, innermost first; of a node of autograd that runs the "
             "(file, line, function) of its forward operator, if it is known; whether one runs.");
}

}  // namespace syncfree::runtime
