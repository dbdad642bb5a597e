// Safe division on the CPU.
#include "core/merge_dims.h"
#include "safe_divide/safe_divide.h"
#include "safe_divide/safe_divide_math.h"

namespace syncfree::safe_divide {

void run(const Problem& given, ParallelFor parallel_for) {
  Problem problem = given;
  merge_dims(problem.num, problem.denom, 0, problem.num.rank);
  constexpr std::int64_t kGrain = 16384;
  parallel_ranges(parallel_for, 0, problem.num.numel(), kGrain,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) divide_element(problem, i);
                  });
}

}  // namespace syncfree::safe_divide
