// Scaling on the CPU.
#include "core/store_as.h"
#include "scale/scale.h"

namespace syncfree::scale {

void run(const Problem& problem, ParallelFor parallel_for) {
  const auto factor = load_as<float>(problem.factor, problem.factor_dtype, 0);
  if (factor == 1.0f) return;
  constexpr std::int64_t kGrain = 16384;
  for (const Elements& part : problem.parts)
    parallel_ranges(parallel_for, 0, part.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) part.data[i] *= factor;
    });
}

}  // namespace syncfree::scale
