// Arithmetic shared by the CPU and CUDA reductions of counts.
#pragma once

#include "accuracy/accuracy_math.h"
#include "accuracy/from_counts.h"

namespace syncfree::accuracy {

struct ClassTotals {
  std::uint64_t tp, fp, tn, fn;
};

SYNCFREE_HD ClassTotals load_counts(const Reduction& reduction, std::int64_t group,
                                    std::int64_t c) {
  const auto load = [&](CountKind kind) {
    return static_cast<std::uint64_t>(reduction.data[kind][group * reduction.group_stride[kind] +
                                                           c * reduction.class_stride[kind]]);
  };
  return {load(kTp), load(kFp), load(kTn), load(kFn)};
}

SYNCFREE_HD bool has_values_of_classes(const Reduction& reduction) {
  return reduction.task == Task::kBinary || reduction.average == Average::kNone;
}

// The accuracy of one class or label, as a fraction.
struct Fraction {
  std::uint64_t part, whole;
};

SYNCFREE_HD Fraction fraction_of(const Reduction& reduction, const ClassTotals& counts) {
  if (reduction.task == Task::kMulticlass) return {counts.tp, counts.tp + counts.fn};
  return {counts.tp + counts.tn, counts.tp + counts.fp + counts.tn + counts.fn};
}

SYNCFREE_HD float value_of_class(const Reduction& reduction, std::int64_t group, std::int64_t c) {
  const Fraction fraction = fraction_of(reduction, load_counts(reduction, group, c));
  return safe_fraction(fraction.part, fraction.whole);
}

// A weighted sum of fractions in integers, which threads may add up in any order: whole numbers,
// and a rest with `shift` fraction bits.
struct WeightedSum {
  std::uint64_t whole = 0;
  std::uint64_t rest = 0;
  std::uint64_t weight = 0;

  // Leaves room for a rest below 1 of each class.
  SYNCFREE_HD static int shift(const Reduction& reduction) {
    return fixed_point_shift(static_cast<std::uint64_t>(reduction.classes));
  }

  SYNCFREE_HD void add(const Reduction& reduction, std::int64_t group, std::int64_t c) {
    const ClassTotals counts = load_counts(reduction, group, c);
    const Fraction fraction = fraction_of(reduction, counts);
    const bool multiclass = reduction.task == Task::kMulticlass;
    std::uint64_t factor = 1;
    switch (reduction.average) {
      case Average::kWeighted:
        factor = counts.tp + counts.fn;
        break;
      case Average::kMacro:
        if (multiclass)
          factor = class_takes_part(counts.tp, counts.fp, counts.fn, reduction.top_one ? 1 : 2);
        break;
      default:
        factor = fraction.whole;
    }
    weight += factor;
    if (factor == fraction.whole) {
      whole += fraction.part;  // exact
    } else if (fraction.whole != 0) {
      const double product = static_cast<double>(factor) * static_cast<double>(fraction.part) /
                             static_cast<double>(fraction.whole);
      const auto integer = static_cast<std::uint64_t>(product);
      const double left = product - static_cast<double>(integer);
      whole += integer;
      rest += static_cast<std::uint64_t>(left * power_of_two(shift(reduction)) + 0.5);
    }
  }

  SYNCFREE_HD float mean(const Reduction& reduction) const {
    if (weight == 0) return 0.0f;
    const double sum =
        static_cast<double>(whole) + static_cast<double>(rest) * power_of_two(-shift(reduction));
    return static_cast<float>(sum / static_cast<double>(weight));
  }
};

SYNCFREE_HD WeightedSum operator+(const WeightedSum& a, const WeightedSum& b) {
  return {a.whole + b.whole, a.rest + b.rest, a.weight + b.weight};
}

}  // namespace syncfree::accuracy
