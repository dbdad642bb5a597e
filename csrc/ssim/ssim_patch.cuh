// Patches, for small images and for maps of any size: a block computes a patch of outputs at once.
// In a small image the warp of a strip would walk down its rows for longer than everything else
// takes.
//
// Each thread filters a run of outputs down one column, from pixels in registers, and leaves means
// and variances in shared memory; then it filters a run along one row. Both passes work about
// pivots from inside the windows, so no digits cancel, whatever the image.
#pragma once

#include "core/early_launch.cuh"
#include "core/fast_divider.h"
#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_patch_filter.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

inline constexpr int kPatchColumns = 64;
inline constexpr int kPatchRows = 16;
inline constexpr int kPatchThreads = 160;
inline constexpr int kPatchBlocksPerMultiprocessor = 6;

enum class PatchTask {
  kValue,     // SSIM alone
  kOneMean,   // SSIM or contrast, also of clamped images
  kAnything,  // whatever the job asks for, except the images of the next scale
};

// What the pass down the columns leaves of one plane (s or d). Rows are four floats more than a
// multiple of eight apart, so that eight lanes that read sixteen bytes each, from eight rows, have
// no bank conflict.
struct alignas(16) PatchPlane {
  static constexpr int kPitch = 76;
  float mean[kPatchRows][kPitch];
  float variance[kPatchRows][kPitch];
};

struct PatchMemory {
  PatchPlane s;
  PatchPlane d;
  double warp_sums[kQuantities][kPatchThreads / 32];  // each warp's part of the unit's sums
};

// How images are cut into patches, of which the last ones extend beyond the border. Rows of preds
// and of target are less than 2^32 bytes apart, so that one multiply-add computes an address.
struct Patches {
  FastDivider in_image;   // patches of an image
  FastDivider in_row;     // patches side by side
  FastDivider in_column;  // patches below each other
  unsigned row_bytes[2];
};

template <class T, PatchTask kTask, class Taps>
class Patch {
 public:
  __device__ Patch(const Job<float>& job, const Patches& patches, PatchMemory& memory)
      : job_(job),
        patches_(patches),
        memory_(memory),
        constants_(job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants) {}

  __device__ void run(unsigned unit) {
    const unsigned image = patches_.in_image.quotient(unit);
    const unsigned patch = unit - image * patches_.in_image.divisor;
    place(image, patch);
    Sums sums;
    if (threadIdx.x < kColumnItems) filter_column(sums);
    __syncthreads();
    if (threadIdx.x < kRowItems) filter_row(sums);
    add_sums(unit, image, sums);
  }

 private:
  using Filter = RunFilter<Taps>;
  using Moments = typename Filter::Moments;
  static constexpr int kHalo = Taps::kHalo;
  static constexpr int kSpan = Filter::kSpan;
  static constexpr int kWidth = kPatchColumns + 2 * kHalo;
  static constexpr int kColumnItems = kWidth * (kPatchRows / kRun);
  static constexpr int kRowItems = kPatchColumns / kRun * kPatchRows;
  static constexpr bool kAddsErrors = kTask == PatchTask::kAnything;
  static constexpr bool kClamps = kTask != PatchTask::kValue;
  static_assert(kColumnItems <= kPatchThreads && kRowItems <= kPatchThreads);
  static_assert(kWidth <= PatchPlane::kPitch && PatchPlane::kPitch % 8 == 4);

  struct Sums {
    float deficit = 0.0f;
    float contrast = 0.0f;
    float squared = 0.0f;
    float absolute = 0.0f;
  };

  __device__ void place(unsigned image, unsigned patch) {
    const unsigned row = patches_.in_row.quotient(patch);
    const unsigned channel = patches_.in_column.quotient(row);
    first_column_ = static_cast<int>(patch - row * patches_.in_row.divisor) * kPatchColumns;
    first_row_ = static_cast<int>(row - channel * patches_.in_column.divisor) * kPatchRows;
    plane_ = image * job_.geometry.channels + channel;
    const auto plane_of = [&](const Image& x) {
      return static_cast<const T*>(x.data) + image * x.stride[0] + channel * x.stride[1];
    };
    preds_ = plane_of(job_.preds);
    target_ = plane_of(job_.target);
  }

  // Filters a run of outputs in one column of the patch, or in one of the kHalo columns on either
  // side.
  __device__ void filter_column(Sums& sums) {
    const int run = threadIdx.x / kWidth, column = threadIdx.x - run * kWidth;
    const int x = first_column_ - kHalo + column, y = first_row_ + run * kRun;
    const int mirrored = LaneColumns::mirrored(x, width());
    unsigned rows[kSpan];
#pragma unroll
    for (int i = 0; i < kSpan; ++i) rows[i] = LaneColumns::mirrored(y - kHalo + i, height());
    T preds[kSpan], target[kSpan];
    load_column(preds_ + mirrored * job_.preds.stride[4], patches_.row_bytes[0], rows, preds);
    load_column(target_ + mirrored * job_.target.stride[4], patches_.row_bytes[1], rows, target);
    float s[kSpan], d[kSpan];
#pragma unroll
    for (int i = 0; i < kSpan; ++i) {
      float a = to<float>(preds[i]), b = to<float>(target[i]);
      if (kClamps && job_.clamp.enabled) {
        a = at_most(at_least(a, job_.clamp.low), job_.clamp.high);
        b = at_most(at_least(b, job_.clamp.low), job_.clamp.high);
      }
      s[i] = a + b;
      d[i] = a - b;
    }
    if constexpr (kAddsErrors)
      if (column >= kHalo && column < kHalo + kPatchColumns && x < width()) add_errors(sums, d, y);
    store(memory_.s, run * kRun, column, Filter::filter_pixels(s, constants_.scale));
    store(memory_.d, run * kRun, column, Filter::filter_pixels(d, constants_.scale));
  }

  __device__ static void load_column(const T* top, unsigned row_bytes,
                                     const unsigned (&rows)[kSpan], T (&to)[kSpan]) {
    const char* const from = reinterpret_cast<const char*>(top);
#pragma unroll
    for (int i = 0; i < kSpan; ++i)
      to[i] = load_element<T>(from + std::uint64_t{rows[i]} * row_bytes);
  }

  __device__ void add_errors(Sums& sums, const float (&d)[kSpan], int y) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float x = y + i < height() ? __fmul_rn(d[kHalo + i], constants_.scale) : 0.0f;
      sums.squared = fmaf(x, x, sums.squared);
      sums.absolute += fabsf(x);
    }
  }

  __device__ static void store(PatchPlane& plane, int row, int column, const Moments& moments) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      plane.mean[row + i][column] = moments.mean[i];
      plane.variance[row + i][column] = moments.variance[i];
    }
  }

  // Filters a run of outputs in one row. Neighboring lanes take neighboring rows, which avoids bank
  // conflicts.
  __device__ void filter_row(Sums& sums) {
    const int row = threadIdx.x % kPatchRows, column = threadIdx.x / kPatchRows * kRun;
    const Moments s = filter_shared(memory_.s, row, column);
    const Moments d = filter_shared(memory_.d, row, column);
    const int y = first_row_ + row, x = first_column_ + column;
    if (kTask == PatchTask::kValue || job_.results.value != nullptr) {
      const unsigned counted = places_within(y, x, job_.leaves_border_out() ? kHalo : 0);
      const bool maps = kTask == PatchTask::kAnything && job_.map != nullptr && y < height();
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const Terms<float> k = terms(s, d, i);
        const float numerator = deficit_numerator(k);
        const float inverse = inverse_of(deficit_denominator(k, numerator));
        const float sum = fmaf(numerator, inverse, sums.deficit);
        sums.deficit = counted >> i & 1 ? sum : sums.deficit;
        if (maps && x + i < width())
          store_map_value(job_, (plane_ * height() + y) * width() + x + i,
                          fmaf(-2.0f, __fmul_rn(numerator, inverse), 1.0f));
      }
    }
    if constexpr (kTask != PatchTask::kValue) {
      if (job_.results.contrast == nullptr) return;
      const unsigned counted = places_within(y, x, kHalo);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const Terms<float> k = terms(s, d, i);
        const float sum = fmaf(k.vd, inverse_of(contrast_denominator(k)), sums.contrast);
        sums.contrast = counted >> i & 1 ? sum : sums.contrast;
      }
    }
  }

  __device__ Terms<float> terms(const Moments& s, const Moments& d, int i) const {
    return make_terms(s.mean[i], s.variance[i], d.mean[i], d.variance[i], constants_.twice_c1,
                      constants_.twice_c2);
  }

  __device__ static Moments filter_shared(const PatchPlane& plane, int row, int column) {
    float mean[kSpan], variance[kSpan];
    load_shared(&plane.mean[row][column], mean);
    load_shared(&plane.variance[row][column], variance);
    return Filter::filter_means(mean, variance);
  }

  __device__ static void load_shared(const float* from, float (&x)[kSpan]) {
    static_assert(kSpan % 4 == 2);
#pragma unroll
    for (int i = 0; i + 4 <= kSpan; i += 4) load_vector(from + i, x + i);
    const float2 two = *reinterpret_cast<const float2*>(from + kSpan - 2);
    x[kSpan - 2] = two.x, x[kSpan - 1] = two.y;
  }

  // Reduces all sums with one barrier.
  __device__ void add_sums(unsigned unit, unsigned image, const Sums& sums) {
    const Results& results = job_.results;
    if (kTask == PatchTask::kValue || results.value != nullptr) put(kDeficit, sums.deficit);
    if (kTask != PatchTask::kValue && results.contrast != nullptr)
      put(kContrastDeficit, sums.contrast);
    if constexpr (kAddsErrors) {
      if (results.squared_error != nullptr) put(kSquaredError, double{sums.squared});
      if (results.absolute_error != nullptr) put(kAbsoluteError, double{sums.absolute});
    }
    __syncthreads();
    if constexpr (kAddsErrors) fill_slots(unit, image);
    if (threadIdx.x != 0) return;
    if (kTask == PatchTask::kValue || results.sums[kDeficit].words != nullptr)
      add_mean(kDeficit, image);
    if (kTask != PatchTask::kValue && results.sums[kContrastDeficit].words != nullptr)
      add_mean(kContrastDeficit, image);
  }

  __device__ void add_mean(Quantity mean, unsigned image) {
    const Results& results = job_.results;
    add_deficits(results, mean, image, results.sums[mean].encoded(of_unit(mean)));
  }

  // Stores the sums that have slots.
  __device__ void fill_slots(unsigned unit, unsigned image) {
    double* const* slots = job_.results.slots;
    bool any = false;
    for (int quantity = 0; quantity < kQuantities; ++quantity) any |= slots[quantity] != nullptr;
    if (!any || threadIdx.x >= 32) return;
    if (threadIdx.x < kQuantities && slots[threadIdx.x] != nullptr)
      slots[threadIdx.x][unit] = of_unit(static_cast<Quantity>(threadIdx.x));
    __syncwarp();
    complete_units(job_.results, image, 1, threadIdx.x == 0);
  }

  template <class Number>
  __device__ void put(Quantity quantity, Number x) {
    const Number sum = warp_sum(x);
    if (threadIdx.x % 32 == 0) memory_.warp_sums[quantity][threadIdx.x / 32] = sum;
  }

  __device__ double of_unit(Quantity quantity) const {
    double sum = 0.0;
    for (const double each : memory_.warp_sums[quantity]) sum += each;
    return factor_of(quantity) * sum;
  }

  __device__ double factor_of(Quantity quantity) const {
    if (!kAddsErrors || quantity < kMeans) return 2.0;
    const double unscaled = static_cast<double>(inverse_of_power(constants_.scale));
    return quantity == kSquaredError ? unscaled * unscaled : unscaled;
  }

  // One bit for each output of a run that begins at (y, x): whether the output lies in the image,
  // at least `border` away from its edge.
  __device__ unsigned places_within(int y, int x, int border) const {
    if (y < border || y >= height() - border) return 0;
    const int begin = min(max(border - x, 0), kRun);
    const int end = min(max(width() - border - x, 0), kRun);
    return (1u << end) - 1 & ~((1u << begin) - 1);
  }
  __device__ int height() const { return static_cast<int>(job_.geometry.size[1]); }
  __device__ int width() const { return static_cast<int>(job_.geometry.size[2]); }

  const Job<float>& job_;
  const Patches& patches_;
  PatchMemory& memory_;
  const Constants<float> constants_;
  int first_column_;
  int first_row_;
  std::int64_t plane_;
  const T* preds_;
  const T* target_;
};

// One or several jobs. The images of the first are of type T, those of all others are float.
struct PatchJobs {
  Patches patches[kMostJointScales];
  unsigned end[kMostJointScales];  // units of a job and of all jobs before it
  Job<float> jobs[kMostJointScales];
};

template <class T, PatchTask kTask, class Taps>
__global__ void __launch_bounds__(kPatchThreads, kPatchBlocksPerMultiprocessor)
    patch_kernel(const __grid_constant__ Job<float> job, const __grid_constant__ Patches patches) {
  __shared__ PatchMemory memory;
  wait_for_kernel_ahead();
  Patch<T, kTask, Taps>(job, patches, memory).run(blockIdx.x);
}

// Several scales of a pyramid in one launch.
template <class T>
__global__ void __launch_bounds__(kPatchThreads, kPatchBlocksPerMultiprocessor)
    joint_patch_kernel(const __grid_constant__ PatchJobs all) {
  __shared__ PatchMemory memory;
  wait_for_kernel_ahead();
  const unsigned unit = blockIdx.x;
  if (unit < all.end[0]) {
    Patch<T, PatchTask::kOneMean, GaussianWindow>(all.jobs[0], all.patches[0], memory).run(unit);
    return;
  }
  int job = 1;
  while (unit >= all.end[job]) ++job;
  Patch<float, PatchTask::kOneMean, GaussianWindow>(all.jobs[job], all.patches[job], memory)
      .run(unit - all.end[job - 1]);
}

}  // namespace syncfree::ssim
