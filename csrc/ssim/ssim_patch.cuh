// Small images: a block computes a patch of outputs at once, where the warp of a strip would walk
// down its rows for longer than all else takes.
//
// Each thread filters a run of outputs down one column, from pixels in registers, and leaves means
// and variances in shared memory; then a run across one row. Both passes work about pivots inside
// the windows, so no digit cancels whatever the image.
#pragma once

#include "core/early_launch.cuh"
#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_patch_filter.cuh"
#include "ssim/ssim_strip_outputs.cuh"
#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

inline constexpr int kPatchColumns = 64;
inline constexpr int kPatchRows = 16;
inline constexpr int kPatchThreads = 160;
inline constexpr int kPatchBlocksPerMultiprocessor = 4;

enum class PatchTask {
  kValue,     // SSIM alone
  kScale,     // of a pyramid: contrast or SSIM
  kAnything,  // whatever the job asks for, but the images of the next scale
};

// Of one plane (s or d) as the columns leave it. With rows four floats beyond a multiple of eight
// apart, eight lanes that read sixteen bytes of as many rows meet in no bank.
struct alignas(16) PatchPlane {
  static constexpr int kPitch = 76;
  float mean[kPatchRows][kPitch];
  float variance[kPatchRows][kPitch];
};

struct PatchMemory {
  PatchPlane s;
  PatchPlane d;
};

// How a plane is cut, the last patches being cut off by the border; and how far the rows of preds
// and of target lie apart, as a whole, so that an address takes two instructions and not four.
struct Patches {
  int across;
  int down;
  std::uint64_t row_bytes[2];
};

template <class T, PatchTask kTask, class Taps>
class Patch {
 public:
  __device__ Patch(const Job<float>& job, const Patches& patches, PatchMemory& memory)
      : job_(job),
        patches_(patches),
        memory_(memory),
        constants_(job.constants_in_memory != nullptr ? *job.constants_in_memory : job.constants) {}

  __device__ void run(std::int64_t unit) {
    const Results& results = job_.results;
    const std::int64_t image = unit / results.units_per_image;
    place(image, static_cast<unsigned>(unit - image * results.units_per_image));
    Sums sums;
    if (threadIdx.x < kColumnItems) filter_column(sums);
    __syncthreads();
    if (threadIdx.x < kRowItems) filter_row(sums);
    write_sums(unit, sums);
    if (threadIdx.x < 32) complete_units(results, image, 1);
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

  __device__ void place(std::int64_t image, unsigned patch) {
    const unsigned above = patch / patches_.across;
    const unsigned channel = above / patches_.down;
    first_column_ = static_cast<int>(patch - above * patches_.across) * kPatchColumns;
    first_row_ = static_cast<int>(above - channel * patches_.down) * kPatchRows;
    plane_ = image * job_.geometry.channels + channel;
    const auto plane_of = [&](const Image& x) {
      return static_cast<const T*>(x.data) + image * x.stride[0] + channel * x.stride[1];
    };
    preds_ = plane_of(job_.preds);
    target_ = plane_of(job_.target);
  }

  // A run of outputs in one column of the patch, beside which kHalo columns stand.
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
      s[i] = __fmul_rn(a + b, constants_.scale);
      d[i] = __fmul_rn(a - b, constants_.scale);
    }
    if constexpr (kAddsErrors)
      if (column >= kHalo && column < kHalo + kPatchColumns && x < width()) add_errors(sums, d, y);
    store(memory_.s, run * kRun, column, Filter::filter(s));
    store(memory_.d, run * kRun, column, Filter::filter(d));
  }

  __device__ static void load_column(const T* top, std::uint64_t row_bytes,
                                     const unsigned (&rows)[kSpan], T (&to)[kSpan]) {
    const char* const from = reinterpret_cast<const char*>(top);
#pragma unroll
    for (int i = 0; i < kSpan; ++i) to[i] = load_element<T>(from + rows[i] * row_bytes);
  }

  __device__ void add_errors(Sums& sums, const float (&d)[kSpan], int y) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float x = y + i < height() ? d[kHalo + i] : 0.0f;
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

  // A run of outputs in one row. Lanes stand below each other, which suits the banks.
  __device__ void filter_row(Sums& sums) {
    const int row = threadIdx.x % kPatchRows, column = threadIdx.x / kPatchRows * kRun;
    const Moments s = filter_shared(memory_.s, row, column);
    const Moments d = filter_shared(memory_.d, row, column);
    const int y = first_row_ + row, x = first_column_ + column;
    const Results& results = job_.results;
    const bool is_inside = is_within(y, height(), kHalo);
    if (kTask == PatchTask::kValue || results.slots[kDeficit] != nullptr) {
      const int border = job_.leaves_border_out() ? kHalo : 0;
      const bool counts = is_within(y, height(), border);
      const bool maps = kTask == PatchTask::kAnything && job_.map != nullptr && y < height();
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const Terms<float> k = terms(s, d, i);
        const float numerator = deficit_numerator(k);
        const float inverse = inverse_of(deficit_denominator(k, numerator));
        if (counts && is_within(x + i, width(), border))
          sums.deficit = fmaf(numerator, inverse, sums.deficit);
        if (maps && x + i < width())
          store_map_value(job_, (plane_ * height() + y) * width() + x + i,
                          fmaf(-2.0f, __fmul_rn(numerator, inverse), 1.0f));
      }
    }
    if constexpr (kTask != PatchTask::kValue) {
      if (results.slots[kContrastDeficit] == nullptr) return;
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const Terms<float> k = terms(s, d, i);
        const float inverse = inverse_of(contrast_denominator(k));
        if (is_inside && is_within(x + i, width(), kHalo))
          sums.contrast = fmaf(k.vd, inverse, sums.contrast);
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
    return Filter::filter(mean, variance);
  }

  __device__ static void load_shared(const float* from, float (&x)[kSpan]) {
    static_assert(kSpan % 4 == 2);
#pragma unroll
    for (int i = 0; i + 4 <= kSpan; i += 4) load_vector(from + i, x + i);
    const float2 two = *reinterpret_cast<const float2*>(from + kSpan - 2);
    x[kSpan - 2] = two.x, x[kSpan - 1] = two.y;
  }

  __device__ void write_sums(std::int64_t unit, const Sums& sums) const {
    double* const* slots = job_.results.slots;
    if (kTask == PatchTask::kValue || slots[kDeficit] != nullptr)
      write(slots[kDeficit], unit, 2.0, sums.deficit);
    if (kTask != PatchTask::kValue && slots[kContrastDeficit] != nullptr)
      write(slots[kContrastDeficit], unit, 2.0, sums.contrast);
    if constexpr (kAddsErrors) {
      const double unscaled = 1.0 / static_cast<double>(constants_.scale);
      if (slots[kSquaredError] != nullptr)
        write(slots[kSquaredError], unit, unscaled * unscaled, sums.squared);
      if (slots[kAbsoluteError] != nullptr)
        write(slots[kAbsoluteError], unit, unscaled, sums.absolute);
    }
  }

  __device__ static void write(double* slots, std::int64_t unit, double factor, float x) {
    const double sum = block_sum<kPatchThreads>(static_cast<double>(x));
    if (threadIdx.x == 0) slots[unit] = factor * sum;
  }

  __device__ static bool is_within(int i, int size, int border) {
    return i >= border && i < size - border;
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

// One or several jobs, whose images are of T in the first and of float in all others.
struct PatchJobs {
  int count;
  Patches patches[kMostJointScales];
  std::int64_t end[kMostJointScales];  // of the units of a job and of those before it
  Job<float> jobs[kMostJointScales];
};

template <class T, PatchTask kTask, class Taps>
__global__ void __launch_bounds__(kPatchThreads, kPatchBlocksPerMultiprocessor)
    patch_kernel(const __grid_constant__ Job<float> job, const __grid_constant__ Patches patches) {
  __shared__ PatchMemory memory;
  wait_for_kernel_ahead();
  Patch<T, kTask, Taps> patch(job, patches, memory);
  const std::int64_t total = job.results.images * job.results.units_per_image;
  for (std::int64_t unit = blockIdx.x; unit < total; unit += gridDim.x) patch.run(unit);
}

// The scales of a pyramid at once.
template <class T>
__global__ void __launch_bounds__(kPatchThreads, kPatchBlocksPerMultiprocessor)
    joint_patch_kernel(const __grid_constant__ PatchJobs all) {
  __shared__ PatchMemory memory;
  wait_for_kernel_ahead();
  for (std::int64_t unit = blockIdx.x; unit < all.end[all.count - 1]; unit += gridDim.x) {
    if (unit < all.end[0]) {
      Patch<T, PatchTask::kScale, GaussianWindow>(all.jobs[0], all.patches[0], memory).run(unit);
      continue;
    }
    int job = 1;
    while (unit >= all.end[job]) ++job;
    Patch<float, PatchTask::kScale, GaussianWindow>(all.jobs[job], all.patches[job], memory)
        .run(unit - all.end[job - 1]);
  }
}

}  // namespace syncfree::ssim
