// Run-time choice of the instruction set.
#include "core/isa.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace syncfree {
namespace {

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return Isa::kAvx512;
  if (__builtin_cpu_supports("x86-64-v3")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa requested_isa() {
  const Isa best = best_isa();
  const char* wanted = std::getenv("SYNCFREE_ISA");
  if (wanted == nullptr) return best;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})
    if (std::strcmp(wanted, isa_name(isa)) == 0 && isa < best) return isa;
  return best;
}

}  // namespace

Isa active_isa() {
  static const Isa isa = requested_isa();
  return isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace syncfree
