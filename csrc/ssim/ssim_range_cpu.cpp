// DataRange::kData on the CPU: the larger of the two tensors' max - min.
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/isa.h"
#include "core/store_as.h"
#include "ssim/ssim_cpu.h"

namespace syncfree::ssim {

struct Extremes {
  double low;
  double high;
};

}  // namespace syncfree::ssim

#define SYNCFREE_KERNEL "ssim/ssim_range_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::ssim {
namespace {

// Extremes of the rows [begin, end), counted over batch, channel, depth and height.
using ExtremesOfRows = Extremes(const TensorView& image, bool in_double, std::int64_t begin,
                                std::int64_t end);

ExtremesOfRows* extremes_of_rows() {
  return select_isa(&baseline::ssim_range_cpu::extremes_of_rows,
                    &avx2::ssim_range_cpu::extremes_of_rows,
                    &avx512::ssim_range_cpu::extremes_of_rows);
}

// max - min of an image, or NaN if it holds one.
double extent_of(const TensorView& image, bool in_double, ParallelFor parallel_for) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t rows = image.size[0] * image.size[1] * image.size[2] * image.size[3];
  std::vector<Extremes> pieces((rows + kRows - 1) / kRows);
  parallel_ranges(
      parallel_for, 0, std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          pieces[i] =
              extremes_of_rows()(image, in_double, i * kRows, std::min(rows, (i + 1) * kRows));
      });
  Extremes all = pieces.front();
  for (const Extremes& piece : pieces) {
    if (std::isnan(piece.low)) return piece.low;
    all = {std::min(all.low, piece.low), std::max(all.high, piece.high)};
  }
  return all.high - all.low;
}

}  // namespace

double data_range(const Problem& problem, ParallelFor parallel_for) {
  if (problem.range.source != DataRange::Source::kData) return problem.range.width();
  if (problem.preds.numel() == 0) return std::numeric_limits<double>::quiet_NaN();
  const bool in_double = problem.preds.dtype == DType::kFloat64;
  const double preds = extent_of(problem.preds, in_double, parallel_for);
  const double target = extent_of(problem.target, in_double, parallel_for);
  return std::isnan(preds) || preds > target ? preds : target;
}

}  // namespace syncfree::ssim
