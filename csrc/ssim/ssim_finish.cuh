// From the sums of units to the results, without a second launch: the warp that completes an image
// adds up its slots in order, and the warp that completes the last image reduces over the batch.
// Means have a word with a counter instead (core/counted_sum.cuh), unless there are too many units.
#pragma once

#include <cstdint>

#include "core/block_sum.cuh"
#include "core/last_block.cuh"
#include "core/store_as.h"
#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {

// The sum of `count` values in an order that depends on `count` alone. Called by a whole warp; the
// result is in all lanes. Loads bypass L1, which may hold lines from before the slots were written.
__device__ inline double sum_in_order(const double* values, std::int64_t count) {
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x % 32; i < count; i += 32) sum += __ldcg(values + i);
  return warp_sum(sum);
}

// Rounding must not carry a value below -1, as for a mean. float32 is stored directly, because the
// conversions through double are slow on most GPUs.
template <class Acc>
__device__ void store_map_value(const Job<Acc>& job, std::int64_t index, Acc ssim) {
  const Acc value = ssim < Acc(-1) ? Acc(-1) : ssim;
  if (sizeof(Acc) == 4 && job.results.dtype == DType::kFloat32)
    static_cast<float*>(job.map)[index] = static_cast<float>(value);
  else
    store_as(job.map, job.results.dtype, index, static_cast<double>(value));
}

// Stores the results of an image. Returns its value in all lanes, and leaves it in `image_values`
// for the reduction over the batch.
__device__ inline double finish_image(const Results& r, std::int64_t image) {
  double sums[kQuantities];
#pragma unroll
  for (int q = 0; q < kQuantities; ++q)
    if (r.slots[q] != nullptr)
      sums[q] = sum_in_order(r.slots[q] + image * r.units_per_image, r.units_per_image);
  const bool has_value = r.slots[kDeficit] != nullptr;
  const double value = has_value ? mean_from_deficit(sums[kDeficit], r.map_elements) : 0.0;
  if (threadIdx.x % 32 != 0) return value;
  if (has_value) {
    if (r.reduction == Reduction::kNone)
      store_as(r.value, r.value_dtype, image, value);
    else if (r.images > 1)
      r.image_values[image] = value;
  }
  if (r.slots[kContrastDeficit] != nullptr) {
    store_as(r.contrast, r.dtype, image,
             mean_from_deficit(sums[kContrastDeficit], r.contrast_elements));
  }
  if (r.squared_error != nullptr) r.squared_error[image] = sums[kSquaredError];
  if (r.absolute_error != nullptr) r.absolute_error[image] = sums[kAbsoluteError];
  return value;
}

// `sum` is the sum of the images' values; only lane 0 needs it.
__device__ inline void finish_batch(const Results& r, double sum) {
  if (threadIdx.x % 32 != 0) return;
  add_batch(r.running, sum, r.images);
  store_as(r.value, r.value_dtype, 0,
           r.reduction == Reduction::kMean ? sum / static_cast<double>(r.images) : sum);
}

// Adds the deficits of units of one image to the word of their mean, and stores the result if that
// completes it. Called by one thread.
__device__ inline void add_deficits(const Results& r, Quantity mean, std::int64_t image,
                                    std::uint64_t encoded) {
  const bool of_batch = mean == kDeficit && r.reduction != Reduction::kNone;
  const bool of_image = !of_batch || r.batch_sum.words != nullptr;
  CountedSums::Arrival all = r.sums[mean].add(of_image ? image : 0, encoded);
  if (all.completes && of_batch && of_image) all = r.batch_sum.add(0, r.batch_sum.encoded(all.sum));
  if (!all.completes) return;
  if (of_batch) {
    const auto images = static_cast<double>(r.images);
    finish_batch(r, images * mean_from_deficit(all.sum, images * r.map_elements));
  } else if (mean == kDeficit) {
    store_as(r.value, r.value_dtype, image, mean_from_deficit(all.sum, r.map_elements));
  } else {
    store_as(r.contrast, r.dtype, image, mean_from_deficit(all.sum, r.contrast_elements));
  }
}

// `is_last_arrival` for a whole warp: true in all lanes or in none. `leads` is true in lane 0
// alone.
__device__ inline bool arrive(std::uint32_t* ticket, std::uint32_t count, std::uint32_t total,
                              bool leads) {
  bool last = false;
  if (leads) last = is_last_arrival(ticket, count, total);
  last = __shfl_sync(0xffffffffu, last, 0);
  __syncwarp();  // orders what the lanes read next: a shuffle orders no memory
  return last;
}

// Called by a whole warp, after its lanes wrote the slots of `units` units of `image`; after writes
// of other lanes than lane 0 there must have been a barrier. If the compiler sees that `leads` is
// one thread of the block, it adds to a ticket directly. Otherwise it first gathers what the lanes
// of the warp add, which takes 0.3 us (H100).
__device__ inline void complete_units(const Results& r, std::int64_t image, std::int64_t units,
                                      bool leads) {
  if (!arrive(r.image_tickets + image, static_cast<std::uint32_t>(units),
              static_cast<std::uint32_t>(r.units_per_image), leads))
    return;
  double sum = finish_image(r, image);
  if (r.reduction == Reduction::kNone || r.slots[kDeficit] == nullptr) return;
  // For a single image everything is known here. The round trip to memory for the ticket would take
  // a microsecond, and that for the value half of one.
  if (r.images > 1) {
    if (!arrive(r.batch_ticket, 1, static_cast<std::uint32_t>(r.images), leads)) return;
    sum = sum_in_order(r.image_values, r.images);
  }
  finish_batch(r, sum);
}

}  // namespace syncfree::ssim
