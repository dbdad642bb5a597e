// The Python module syncfree._runtime: host objects that need no torch.
#include <pybind11/pybind11.h>

#include "core/isa.h"
#include "runtime/build_info.h"

namespace py = pybind11;

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "Host side of syncfree: build information.";
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
  module.def(
      "instruction_set", [] { return syncfree::isa_name(syncfree::active_isa()); },
      "The instruction set that the CPU kernels use: 'baseline', 'avx2' or 'avx512'.");
}
