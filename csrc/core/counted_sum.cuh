// A sum that knows when it is complete. One 64-bit word holds how many terms came, in its last
// bits, and above them the sum in fixed point: integers give the same bits in whatever order they
// come, and one addition in memory brings terms, tells whether they were the last and what all are
// together. Slots with a ticket take a fence, a ticket, and a read of all slots for that.
#pragma once

#include <cuda/atomic>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace syncfree {

// Of numbers that are not negative. Words are zero between launches.
struct CountedSums {
  // So that rounding, of one sign where terms repeat, leaves less than 2^-30 of `most`.
  static constexpr int kCountBits = 16;
  static constexpr std::int64_t kMostTerms = (1 << kCountBits) - 1;

  std::uint64_t* words = nullptr;
  std::uint32_t terms = 0;  // of each
  int exponent = 0;         // of the power of two that makes a sum an integer

  CountedSums() = default;
  // `most` bounds a sum, up to rounding.
  CountedSums(std::uint64_t* all, std::int64_t terms_of_each, double most)
      : words(all), terms(static_cast<std::uint32_t>(terms_of_each)) {
    std::frexp(std::max(most, 1.0), &exponent);
    exponent = kSumBits - 1 - exponent;
  }

  struct Arrival {
    bool completes;
    double sum;  // of all terms then; NaN where one of them was
  };

  // A term as it is added to a word, with its count, and such terms together: never more than a
  // word takes, or their count would run into their sum.
  __device__ std::uint64_t encoded(double term) const {
    const double scaled = term * power_of_two(exponent);
    return 1 |
           (scaled < kEnd ? static_cast<std::uint64_t>(scaled + 0.5) << kCountBits : kNotANumber);
  }
  __device__ static std::uint64_t joined(std::uint64_t a, std::uint64_t b) {
    return ((a & ~kNotANumber) + (b & ~kNotANumber)) | ((a | b) & kNotANumber);
  }

  // By one thread.
  __device__ Arrival add(std::int64_t index, std::uint64_t terms_here) const {
    const cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device> word(words[index]);
    // Of one thread and one word: it comes before the count does.
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
