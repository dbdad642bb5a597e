// A sum that knows when it is complete. The low bits of one 64-bit word count the terms that have
// arrived, the bits above hold their sum in fixed point. Integers give the same bits in any order
// of arrival, and one atomic addition delivers terms, tells whether they were the last and returns
// the total. Slots with a ticket would take a fence, the ticket and a read of all slots.
#pragma once

#include <cuda/atomic>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace syncfree {

// Sums of non-negative numbers. The words are zero between launches.
struct CountedSums {
  // So that rounding errors, which have one sign where terms repeat, stay below 2^-30 of `most`.
  static constexpr int kCountBits = 16;
  static constexpr std::int64_t kMostTerms = (1 << kCountBits) - 1;

  std::uint64_t* words = nullptr;
  std::uint32_t terms = 0;  // of each sum
  int exponent = 0;         // sums are scaled by 2^exponent to integers

  CountedSums() = default;
  // `most` is an upper bound of each sum, up to rounding.
  CountedSums(std::uint64_t* all, std::int64_t terms_of_each, double most)
      : words(all), terms(static_cast<std::uint32_t>(terms_of_each)) {
    std::frexp(std::max(most, 1.0), &exponent);
    exponent = kSumBits - 1 - exponent;
  }

  struct Arrival {
    bool completes;
    double sum;  // of all terms, if complete; NaN if one of them was
  };

  // `encoded` makes a term with its count an increment of a word, `joined` adds such increments up.
  // Joined terms must not be more than the word waits for, or their count would run into their sum.
  __device__ std::uint64_t encoded(double term) const {
    const double scaled = term * power_of_two(exponent);
    return 1 |
           (scaled < kEnd ? static_cast<std::uint64_t>(scaled + 0.5) << kCountBits : kNotANumber);
  }
  __device__ static std::uint64_t joined(std::uint64_t a, std::uint64_t b) {
    return ((a & ~kNotANumber) + (b & ~kNotANumber)) | ((a | b) & kNotANumber);
  }

  // Called by one thread.
  __device__ Arrival add(std::int64_t index, std::uint64_t terms_here) const {
    const cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device> word(words[index]);
    // The operations of one thread on one word stay in order: the mark is there before the count.
    if (terms_here & kNotANumber) word.fetch_or(kNotANumber, cuda::memory_order_relaxed);
    const std::uint64_t added = terms_here & ~kNotANumber;
    const std::uint64_t all = word.fetch_add(added, cuda::memory_order_relaxed) + added;
    if ((all & kMostTerms) != terms) return {false, 0.0};
    words[index] = 0;
    const auto sum = static_cast<double>((all & ~kNotANumber) >> kCountBits);
    return {true, all & kNotANumber ? NAN : sum * power_of_two(-exponent)};
  }

 private:
  __device__ static double power_of_two(int exponent) {
    return detail::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
  }

  static constexpr int kSumBits = 63 - kCountBits;
  static constexpr double kEnd = static_cast<double>(std::int64_t{1} << kSumBits);
  static constexpr std::uint64_t kNotANumber = std::uint64_t{1} << 63;
};

}  // namespace syncfree
