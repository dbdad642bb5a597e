// Arithmetic shared by the CPU and CUDA accuracy kernels: score order, thresholds, averages.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "accuracy/accuracy.h"
#include "core/dtype.h"

namespace syncfree::accuracy {

// The layout of a floating type, and the type in which its values are compared without loss.
template <class T>
struct FloatFormat;
template <>
struct FloatFormat<float> {
  using Bits = std::uint32_t;
  using Compute = float;
  static constexpr Bits kInfinity = 0x7f800000u;
};
template <>
struct FloatFormat<double> {
  using Bits = std::uint64_t;
  using Compute = double;
  static constexpr Bits kInfinity = 0x7ff0000000000000u;
};
template <>
struct FloatFormat<Half> {
  using Bits = std::uint16_t;
  using Compute = float;
  static constexpr Bits kInfinity = 0x7c00u;
  static constexpr int kDigits = 11;
  static constexpr int kMinExponent = -24;
};
template <>
struct FloatFormat<BFloat16> {
  using Bits = std::uint16_t;
  using Compute = float;
  static constexpr Bits kInfinity = 0x7f80u;
  static constexpr int kDigits = 8;
  static constexpr int kMinExponent = -133;
};

template <class T>
using BitsOf = typename FloatFormat<T>::Bits;
template <class T>
using ComputeOf = typename FloatFormat<T>::Compute;

// Calls `f(TypeTag<T>{})` for the floating type that `dtype` names.
template <class F>
decltype(auto) dispatch_score_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(TypeTag<double>{});
    case DType::kFloat16:
      return f(TypeTag<Half>{});
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>{});
    default:
      return f(TypeTag<float>{});
  }
}

// The order of scores is torch.argmax's: NaN is above +inf, all NaN are equal, -0 equals +0, and
// among equal scores the lower class index is ahead.

// Maps a score to an unsigned integer in that order.
template <class T>
SYNCFREE_HD BitsOf<T> ordered_key(T score) {
  using Bits = BitsOf<T>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits bits = syncfree::detail::bit_cast<Bits>(score);
  const Bits magnitude = static_cast<Bits>(bits & ~kSign);
  if (magnitude > FloatFormat<T>::kInfinity) return static_cast<Bits>(~Bits{0});
  const Bits folded = magnitude == 0 ? Bits{0} : bits;
  return static_cast<Bits>(folded & kSign ? ~folded : folded | kSign);
}

// Whether a rival class is ahead of the target class; the target's rank is the number of those.
template <class Key>
SYNCFREE_HD bool is_ahead(Key rival, std::int64_t rival_class, Key target,
                          std::int64_t target_class) {
  return rival > target || (rival == target && rival_class < target_class);
}

// What a problem asks to be counted.

SYNCFREE_HD std::int64_t class_count(const Problem& problem) {
  const bool scores = problem.task == Task::kMulticlass && !problem.preds_are_labels;
  return scores ? problem.preds.size[1] : problem.num_classes;
}

SYNCFREE_HD int effective_top_k(const Problem& problem) {
  return problem.preds_are_labels ? 1 : problem.top_k;
}

inline int least_top_k(const Problem& problem) {
  return problem.top_ks.count > 0 ? problem.top_ks.k[0] : effective_top_k(problem);
}

// Weighted multiclass accuracy is sum(support * tp / support) / sum(support), hence the plain
// fraction: no class counts are needed.
SYNCFREE_HD bool is_plain_fraction(const Problem& problem) {
  return problem.task == Task::kBinary || problem.average == Average::kMicro ||
         (problem.task == Task::kMulticlass && problem.average == Average::kWeighted);
}

// Whether all classes or labels share one set of counts. TorchMetrics keeps a state for each of
// them, except for binary elements and the global top-1 micro average of classes.
inline bool is_pooled(const Problem& problem) {
  if (!problem.counts.wanted()) return is_plain_fraction(problem);
  if (problem.task != Task::kMulticlass) return problem.task == Task::kBinary;
  return problem.num_classes == 0 || (problem.average == Average::kMicro && !problem.samplewise &&
                                      effective_top_k(problem) == 1);
}

// A wrong row is a false positive of the class that it predicts. Of the averages only the top-1
// macro one depends on these: a class without support takes part once a row predicts it. All others
// need only right or wrong.
inline bool needs_predicted_class(const Problem& problem) {
  if (problem.task != Task::kMulticlass || is_pooled(problem)) return false;
  return problem.counts.wanted() ||
         (problem.average == Average::kMacro && least_top_k(problem) == 1);
}

// Binary and multilabel scores.

// Scores are probabilities, positive where `score > probability`, unless any score of the tensor
// lies outside [0, 1]: then all are logits, positive where `score >= logit`. Both bounds are exact
// values of the scores' type. A NaN score is never positive and never outside.
struct ScoreThreshold {
  double probability = 0.5;
  double logit = 0.0;  // the least score whose sigmoid exceeds the threshold; NaN if there is none
};

template <class Compute>
SYNCFREE_HD bool is_outside_unit_interval(Compute score) {
  return score < Compute{0} || score > Compute{1};
}

namespace detail {

// Rounds to nearest, ties to even, by way of float as torch converts a Python number.
template <class T>
double round_to_format(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    using Format = FloatFormat<T>;
    const double number = static_cast<float>(value);
    int exponent = 0;
    std::frexp(number, &exponent);
    const int quantum = exponent - Format::kDigits;
    const int least = quantum > Format::kMinExponent ? quantum : Format::kMinExponent;
    return std::ldexp(std::nearbyint(std::ldexp(number, -least)), least);
  }
}

// As torch.sigmoid: in float for float and narrower types, then rounded to the type.
template <class T>
double sigmoid_in_format(double score) {
  if constexpr (std::is_same_v<T, double>) {
    return 1.0 / (1.0 + std::exp(-score));
  } else {
    const float sum = 1.0f + static_cast<float>(std::exp(-score));
    return round_to_format<T>(1.0f / sum);
  }
}

// The `order`-th value above zero of the type, or below if negative.
template <class T>
double value_at(std::int64_t order) {
  const auto magnitude = static_cast<BitsOf<T>>(order < 0 ? -order : order);
  const double value = to<double>(syncfree::detail::bit_cast<T>(magnitude));
  return order < 0 ? -value : value;
}

// The rounded sigmoid is monotonic, so one comparison replaces it; the bound is found by bisection
// over all values of the type.
template <class T>
ScoreThreshold find_score_threshold(double threshold) {
  ScoreThreshold bounds;
  bounds.probability = round_to_format<T>(threshold);
  const auto positive = [&](std::int64_t order) {
    return sigmoid_in_format<T>(value_at<T>(order)) > bounds.probability;
  };
  std::int64_t high = static_cast<std::int64_t>(FloatFormat<T>::kInfinity);
  std::int64_t low = -high;
  if (!positive(high)) {
    bounds.logit = std::numeric_limits<double>::quiet_NaN();
    return bounds;
  }
  while (low < high) {
    const std::int64_t middle =
        low + static_cast<std::int64_t>(
                  (static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)) / 2);
    if (positive(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  bounds.logit = value_at<T>(high);
  return bounds;
}

}  // namespace detail

inline ScoreThreshold score_threshold(DType dtype, double threshold) {
  struct Memo {
    DType dtype = DType::kBool;
    double threshold = 0;
    ScoreThreshold bounds;
  };
  // The bisection takes microseconds, and callers keep one threshold.
  thread_local Memo memo;
  if (memo.dtype == dtype && memo.threshold == threshold) return memo.bounds;
  const ScoreThreshold bounds = dispatch_score_dtype(dtype, [&](auto tag) {
    return detail::find_score_threshold<typename decltype(tag)::type>(threshold);
  });
  memo = {dtype, threshold, bounds};
  return bounds;
}

// Averages. Means of fractions are summed in fixed point: integers give the same bits in whatever
// order threads add them, and 62 bits hold the sum with an error far below float's.

// Correctly rounded while the counts are below 2^53; 0/0 is 0.
SYNCFREE_HD float safe_fraction(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0f
                    : static_cast<float>(static_cast<double>(part) / static_cast<double>(whole));
}

// Fraction bits that leave room for a sum of weights times fractions, given the sum of the weights.
SYNCFREE_HD int fixed_point_shift(std::uint64_t total_weight) {
  int width = 0;
  while (width < 62 && total_weight >> width) ++width;
  return 62 - width;
}

SYNCFREE_HD double power_of_two(int exponent) {
  return syncfree::detail::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// weight * part / whole with `shift` fraction bits; 0/0 is 0.
SYNCFREE_HD std::uint64_t weighted_fraction(std::uint64_t weight, std::uint64_t part,
                                            std::uint64_t whole, int shift) {
  if (whole == 0) return 0;
  const double fraction = static_cast<double>(part) / static_cast<double>(whole);
  const double scaled = static_cast<double>(weight) * fraction * power_of_two(shift);
  return static_cast<std::uint64_t>(scaled + 0.5);
}

SYNCFREE_HD float mean_of_fractions(std::uint64_t sum, std::uint64_t total_weight, int shift) {
  if (total_weight == 0) return 0.0f;
  return static_cast<float>(static_cast<double>(sum) * power_of_two(-shift) /
                            static_cast<double>(total_weight));
}

// Multiclass macro: whether a class takes part in the mean (of tp / (tp + fn), weight 1,
// shift fixed_point_shift(classes)). Multilabel: every label takes part.
SYNCFREE_HD bool class_takes_part(std::uint64_t tp, std::uint64_t fp, std::uint64_t fn, int top_k) {
  return tp + fn != 0 || (top_k == 1 && fp != 0);
}

}  // namespace syncfree::accuracy
