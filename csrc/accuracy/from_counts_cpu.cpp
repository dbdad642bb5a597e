// The reduction of counts on the CPU.
#include <algorithm>
#include <limits>

#include "accuracy/from_counts_math.h"

namespace syncfree::accuracy {

void run(const Reduction& reduction, ParallelFor parallel_for) {
  constexpr std::int64_t kGrain = 1 << 14;
  const bool each = has_values_of_classes(reduction);
  const bool bad = reduction.bad != nullptr && *reduction.bad > 0;
  const auto value_of_group = [&](std::int64_t group) {
    WeightedSum sum;
    for (std::int64_t c = 0; c < reduction.classes; ++c) sum.add(reduction, group, c);
    return sum.mean(reduction);
  };
  const std::int64_t values = each ? reduction.groups * reduction.classes : reduction.groups;
  const std::int64_t in_a_value = each ? 1 : std::max<std::int64_t>(1, reduction.classes);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / in_a_value);
  parallel_ranges(parallel_for, 0, values, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float value =
          each ? value_of_class(reduction, i / reduction.classes, i % reduction.classes)
               : value_of_group(i);
      reduction.value[i] = bad ? std::numeric_limits<float>::quiet_NaN() : value;
    }
  });
}

}  // namespace syncfree::accuracy
