// PSNR on the CPU: fixed chunks summed in parallel, finished in order.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/store_as.h"
#include "psnr/psnr.h"
#include "psnr/psnr_cpu_pixels.h"
#include "psnr/psnr_math.h"

namespace syncfree::psnr {
namespace {

// Elements that are worth handing to a thread.
constexpr std::int64_t kGrain = 1 << 17;

// This many elements take as long as the logarithm of a result.
constexpr std::int64_t kElementsOfLogarithm = 32;

// The most chunks of a result: enough for all threads, few enough to add up in order.
constexpr std::int64_t kMostChunks = 64;

// Results whose squared errors are buffered before they become values.
constexpr std::int64_t kTogether = 256;

class Values {
 public:
  explicit Values(const Problem& problem, std::int64_t elements)
      : problem_(problem),
        elements_(elements),
        scale_(scale_of(make_scale(problem.range.width(), problem.base), problem.states)) {}

  bool are_kept() const { return problem_.reduction == Reduction::kNone || problem_.kept == 0; }

  // Stores the result's own value and returns 0, or returns its term of the sum over all results.
  double finish(std::int64_t result, double squared_error) const {
    hand_over(result, squared_error, elements_, problem_.states);
    const double value =
        problem_.wants_squared_error
            ? squared_error
            : from_squared_error(squared_error, static_cast<double>(elements_), scale_);
    if (!are_kept()) return value;
    store_as(problem_.value, problem_.result_dtype, result, value);
    return 0.0;
  }

  void store_sum(double sum, std::int64_t results) const {
    if (are_kept()) return;
    const bool mean = problem_.reduction == Reduction::kMean;
    store_as(problem_.value, problem_.result_dtype, 0,
             mean ? sum / static_cast<double>(results) : sum);
  }

 private:
  const Problem& problem_;
  const std::int64_t elements_;
  const Scale scale_;
};

// A single result, or results of several chunks.
void run_large(const SquaredErrors& errors, const Values& values, ParallelFor parallel_for) {
  const std::int64_t reduced = errors.reduced(), results = errors.results();
  const Chunks chunks = make_chunks(reduced, kRun, kMostChunks);
  const std::vector<double> runs = sums_of_pixels(errors, parallel_for);
  const auto sum_of = [&](std::int64_t result, std::int64_t begin, std::int64_t end) {
    if (runs.empty()) return errors.of_elements(result, begin, end);
    double sum = 0.0;
    for (std::int64_t first = begin; first < end; first += kRun)
      sum += runs[static_cast<std::size_t>(result * errors.runs() + first / kRun)];
    return sum;
  };
  std::vector<double> partial(static_cast<std::size_t>(results * chunks.count));
  const std::int64_t grain = std::max<std::int64_t>(
      1, kGrain / std::max<std::int64_t>(1, std::min(chunks.elements, reduced)));
  parallel_ranges(
      parallel_for, 0, results * chunks.count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t first = item % chunks.count * chunks.elements;
          partial[item] =
              sum_of(item / chunks.count, first, std::min(first + chunks.elements, reduced));
        }
      });
  double total = 0.0;
  for (std::int64_t result = 0; result < results; ++result) {
    double squared = 0.0;
    for (std::int64_t c = 0; c < chunks.count; ++c) squared += partial[result * chunks.count + c];
    total += values.finish(result, squared);
  }
  values.store_sum(total, results);
}

// Several results of one run at most: a thread takes whole results. The size of the groups whose
// values are added up apart does not depend on the number of threads.
void run_small(const SquaredErrors& errors, const Values& values, ParallelFor parallel_for) {
  const std::int64_t results = errors.results();
  const std::int64_t group =
      std::max<std::int64_t>(1, kGrain / (kElementsOfLogarithm + errors.reduced()));
  const std::int64_t groups = (results + group - 1) / group;
  std::vector<double> partial(static_cast<std::size_t>(values.are_kept() ? 0 : groups));
  parallel_ranges(parallel_for, 0, groups, 1, [&](std::int64_t begin, std::int64_t end) {
    double squared[kTogether];
    for (std::int64_t g = begin; g < end; ++g) {
      const std::int64_t behind = std::min(results, (g + 1) * group);
      double total = 0.0;
      for (std::int64_t first = g * group; first < behind; first += kTogether) {
        const std::int64_t count = std::min(kTogether, behind - first);
        errors.of_results(first, count, squared);
        for (std::int64_t i = 0; i < count; ++i) total += values.finish(first + i, squared[i]);
      }
      if (!partial.empty()) partial[g] = total;
    }
  });
  double total = 0.0;
  for (const double each : partial) total += each;
  values.store_sum(total, results);
}

}  // namespace

void run(const Problem& problem, ParallelFor parallel_for) {
  const SquaredErrors errors(problem);
  const Values values(problem, errors.reduced());
  const bool small = errors.results() > 1 && errors.reduced() <= kRun;
  (small ? run_small : run_large)(errors, values, parallel_for);
}

}  // namespace syncfree::psnr
