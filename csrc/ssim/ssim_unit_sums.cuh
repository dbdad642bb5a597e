// Where the sums of a walk's units go: to a word of their mean once the walk has ended, or each to
// a slot of its own.
#pragma once

#include <cstdint>

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_task.h"

namespace syncfree::ssim {

// Of one warp, in shared memory: registers are the loop's.
class UnitSums {
 public:
  __device__ void clear() {
    if (threadIdx.x % 32 == 0)
      for (std::uint64_t& deficits : means_) deficits = 0;
  }

  // By lane 0.
  template <StripTask kTask>
  __device__ void add(const Results& r, std::int64_t unit, const double (&sums)[kQuantities]) {
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      if (!may_have<kTask>(q)) continue;
      if (r.slots[q] != nullptr)
        r.slots[q][unit] = sums[q];
      else if (q < kMeans && r.sums[q].words != nullptr)
        means_[q] = CountedSums::joined(means_[q], r.sums[q].encoded(sums[q]));
    }
  }

  // By the whole warp, once `units` of `image` have been added.
  template <StripTask kTask>
  __device__ void complete(const Results& r, std::int64_t image, std::int64_t units) const {
    const bool leads = threadIdx.x % 32 == 0;
    bool has_slots = false;
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      if (!may_have<kTask>(q)) continue;
      has_slots |= r.slots[q] != nullptr;
      if (leads && q < kMeans && r.sums[q].words != nullptr)
        add_deficits(r, static_cast<Quantity>(q), image, means_[q]);
    }
    if (has_slots) complete_units(r, image, units, leads);
  }

 private:
  template <StripTask kTask>
  __device__ static constexpr bool may_have(int quantity) {
    if (quantity == kDeficit) return !kIsScale<kTask>;
    if (quantity == kContrastDeficit) return kIsScale<kTask> || kTask == StripTask::kAnything;
    return kAddsErrors<kTask>;
  }

  std::uint64_t means_[kMeans];
};

}  // namespace syncfree::ssim
