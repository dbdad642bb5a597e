// Safe division on the CPU.
#include <algorithm>

#include "core/merge_dims.h"
#include "core/row_walk.h"
#include "safe_divide/safe_divide.h"
#include "safe_divide/safe_divide_math.h"

namespace syncfree::safe_divide {
namespace {

using Walk = RowWalk<2, kMaxRank>;
constexpr int kNum = 0, kDenom = 1;

// Operands and quotient of one type: its own division rounds as that of double would. A step of 1
// is that of a contiguous row, a step of 0 that of a denominator broadcast along the row.
template <class T>
void divide_row(const Problem& p, const Walk& at, std::int64_t index, std::int64_t count) {
  const T* const num = static_cast<const T*>(p.num.data) + at.offset(kNum);
  const T* const denom = static_cast<const T*>(p.denom.data) + at.offset(kDenom);
  T* const quotient = static_cast<T*>(p.quotient) + index;
  const auto otherwise = static_cast<T>(p.zero_division);
  const auto divide_by = [&](auto num_step, auto denom_step) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T by = denom[i * denom_step], x = num[i * num_step] / by;
      quotient[i] = by == 0 ? otherwise : x;
    }
  };
  using One = std::integral_constant<std::int64_t, 1>;
  using Zero = std::integral_constant<std::int64_t, 0>;
  const std::int64_t a = at.step(kNum), b = at.step(kDenom);
  if (a == 1 && b == 1) return divide_by(One{}, One{});
  if (a == 1 && b == 0) return divide_by(One{}, Zero{});
  divide_by(a, b);
}

void divide_any_row(const Problem& p, const Walk& at, std::int64_t index, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    divide_element(p,
                   {at.offset(kNum) + i * at.step(kNum), at.offset(kDenom) + i * at.step(kDenom)},
                   index + i);
}

auto* row_divider(const Problem& p) {
  const auto all_are = [&](DType dtype) {
    return p.num.dtype == dtype && p.denom.dtype == dtype && p.result_dtype == dtype;
  };
  if (all_are(DType::kFloat32)) return &divide_row<float>;
  return all_are(DType::kFloat64) ? &divide_row<double> : &divide_any_row;
}

}  // namespace

void run(const Problem& given, ParallelFor parallel_for) {
  Problem problem = given;
  merge_dims(problem.num, problem.denom, 0, problem.num.rank);
  const auto divide = row_divider(problem);
  constexpr std::int64_t kGrain = 16384;
  parallel_ranges(
      parallel_for, 0, problem.num.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        Walk walk({problem.num.rank, problem.num.size, {problem.num.stride, problem.denom.stride}},
                  begin);
        while (begin < end) {
          const std::int64_t count = std::min(end - begin, walk.left_in_row());
          divide(problem, walk, begin, count);
          walk.advance(count);
          begin += count;
        }
      });
}

}  // namespace syncfree::safe_divide
