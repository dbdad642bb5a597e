// PSNR from gathered errors on the CPU: fixed chunks in parallel, added up in order.
#include <algorithm>
#include <vector>

#include "psnr/from_errors_math.h"

namespace syncfree::psnr {

void run(const ErrorSums& given, ParallelFor parallel_for) {
  constexpr std::int64_t kLeast = 2048, kMostChunks = 64;
  const ErrorSums sums = with_merged_dims(given);
  Scale scale = make_scale(1.0, sums.base);
  scale.log_range_squared = log_range_squared(sums.data_range, sums.data_range_dtype);
  const bool each = sums.reduction == Reduction::kNone;
  const std::int64_t results = sums.squared_error.numel();
  const Chunks chunks = make_chunks(results, kLeast, kMostChunks);
  std::vector<double> partial(static_cast<std::size_t>(chunks.count));
  parallel_ranges(parallel_for, 0, chunks.count, 1,
                  [&](std::int64_t first_chunk, std::int64_t end_chunk) {
                    for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
                      const std::int64_t begin = chunk * chunks.elements;
                      const std::int64_t end = std::min(begin + chunks.elements, results);
                      double sum = 0.0;
                      for (std::int64_t i = begin; i < end; ++i) {
                        const double value = value_of(sums, i, scale);
                        if (each)
                          store_as(sums.value, sums.result_dtype, i, value);
                        else
                          sum += value;
                      }
                      partial[static_cast<std::size_t>(chunk)] = sum;
                    }
                  });
  if (each) return;
  double sum = 0.0;
  for (const double part : partial) sum += part;
  store_reduced(sums, sum, results);
}

}  // namespace syncfree::psnr
