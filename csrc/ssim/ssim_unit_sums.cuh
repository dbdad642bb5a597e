// Collects the sums of a walk's units: sums of a mean that has a word are joined, and added to the
// word when the walk ends; each other sum goes to the slot of its unit.
#pragma once

#include <cstdint>

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_strip_task.h"

namespace syncfree::ssim {

// One per warp, in shared memory: the loop needs all registers.
class UnitSums {
 public:
  __device__ void clear() {
    if (threadIdx.x % 32 == 0)
      for (std::uint64_t& deficits : means_) deficits = 0;
  }

  // Called by lane 0.
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

  // Called by the whole warp, once all `units` units of the walk, all in `image`, have been added.
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
