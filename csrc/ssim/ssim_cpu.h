// What the launcher and the vector kernels on the CPU share: geometry, partial sums, memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "ssim/ssim.h"
#include "ssim/ssim_math.h"

namespace syncfree::ssim {

enum AxisName { kDepth, kHeight, kWidth };

// Limits of the fast path (ssim_cpu_stream.h). Its ring buffer holds four floats per column for
// each row of a window, and should stay in a second-level cache.
inline constexpr int kMaxStreamTaps = 129;
inline constexpr std::int64_t kRingFloats = 1 << 16;

struct AxisPlan {
  std::int64_t input = 1;
  std::int64_t output = 1;
  int taps = 1;
  int pad = 0;
  std::int64_t piece = 1;  // outputs per piece; the last one may be shorter
  std::vector<double> weights;

  std::int64_t pieces() const { return (output + piece - 1) / piece; }
  std::int64_t begin(std::int64_t index) const { return index * piece; }
  std::int64_t end(std::int64_t index) const { return std::min(output, (index + 1) * piece); }
  bool in_crop(std::int64_t index) const { return index >= pad && index < output - pad; }
};

// Sums over one unit. Units are cut at positions that depend on the image size alone and are summed
// in order, so no result depends on the batch, the layout or the number of threads.
struct UnitTotals {
  double deficit = 0.0;  // 1 - SSIM, which keeps its digits where SSIM is close to 1
  double contrast_deficit = 0.0;
  double squared_error = 0.0;
  double absolute_error = 0.0;
};

// A unit is one piece of each axis of one plane, which is one channel of one image. Units are
// numbered down the height first, then along width, depth and planes.
struct Plan {
  const Problem* problem = nullptr;
  AxisPlan axes[3];
  Constants<double> constants;
  UnitTotals* partial = nullptr;

  std::int64_t units_per_plane() const {
    return axes[kDepth].pieces() * axes[kWidth].pieces() * axes[kHeight].pieces();
  }
  bool wants_value() const { return problem->value != nullptr; }
  bool wants_pooled() const { return problem->pooled_preds != nullptr; }
  bool wants_errors() const {
    return problem->squared_error != nullptr || problem->absolute_error != nullptr;
  }
};

struct Unit {
  std::int64_t plane;
  std::int64_t piece[3];
};

inline Unit unit_at(const Plan& plan, std::int64_t index) {
  Unit unit;
  for (AxisName axis : {kHeight, kWidth, kDepth}) {
    unit.piece[axis] = index % plan.axes[axis].pieces();
    index /= plan.axes[axis].pieces();
  }
  unit.plane = index;
  return unit;
}

inline std::int64_t row_offset(const TensorView& image, std::int64_t plane, std::int64_t z,
                               std::int64_t y) {
  const std::int64_t channels = image.size[1];
  return plane / channels * image.stride[0] + plane % channels * image.stride[1] +
         z * image.stride[2] + y * image.stride[3];
}

// Zeroed memory, aligned to the cache line.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {
    std::fill_n(data_.get(), bytes, std::byte{});
  }
  void* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte[], Delete> data_;
};

// The data range of the problem. With DataRange::kData it comes from the images, and is NaN if they
// hold a NaN or no pixels.
double data_range(const Problem& problem, ParallelFor parallel_for);

// The entry points of one instruction set.
struct Kernels {
  void (*stream)(const Plan& plan, std::int64_t begin, std::int64_t end);
  void (*general)(const Plan& plan, std::int64_t begin, std::int64_t end);
};

}  // namespace syncfree::ssim
