// Which x86 instruction set the CPU kernels use, decided once at run time.
#pragma once

namespace syncfree {

enum class Isa : int { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

// The best instruction set of this machine, or the lower one that the environment variable
// SYNCFREE_ISA names (baseline, avx2, avx512), so that tests can run each path.
Isa active_isa();

const char* isa_name(Isa isa);

// Picks the build of one function for the active instruction set.
template <class Function>
Function* select_isa(Function* baseline, Function* avx2, Function* avx512) {
  switch (active_isa()) {
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx2:
      return avx2;
    default:
      return baseline;
  }
}

}  // namespace syncfree
