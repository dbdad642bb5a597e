// How a warp reads the rows of a strip for the uniform window: pairs of rows of both images are
// copied to shared memory asynchronously, four columns per lane.
#pragma once

#include <cstdint>

#include "core/async_copy.cuh"
#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

// The first and the last lane hold the halo, and have no windows. Lanes get their neighbors'
// columns by shuffles, which need no stores and no barrier; the price is the work of two lanes. If
// all lanes loaded, converted and stored a halo beside their own columns, that would cost as much.
inline constexpr int kUniformColumns = 30 * kColumns;

// As many warps as a multiprocessor has registers for, in one block: neighbors read the sectors
// that they share at the same time, through one first-level cache.
inline constexpr int kUniformWarps = 12;

struct UniformColumns {
  int first;       // of the lane's columns
  int first_read;  // the same, moved into the image
  bool inside;     // the lane has windows, the first of them in the image
  bool before;     // its columns mirror those right of the image's left edge
  bool behind;     // or those left of the right edge, if that is a lane's edge too

  __device__ UniformColumns(int strip_begin, int width) {
    const int lane = threadIdx.x % 32;
    const int last = (width - 1) / kColumns * kColumns;
    first = strip_begin + kColumns * (lane - 1);
    first_read = max(min(first, last), 0);
    inside = lane > 0 && lane < 31 && first < width;
    before = first < 0;
    behind = first == width;
  }

  // The column of the image at the lane's c-th place: the same as UniformWalk::mirror_columns()
  // gives for a vector.
  __device__ int column(int c, int width) const {
    if (before) return c == 0 ? 0 : kColumns - c;
    if (behind) return c == kColumns - 1 ? width - 1 : width - 2 - c;
    const bool cut = first > width && first < width + kColumns;  // beside a lane that the edge cuts
    return LaneColumns::mirrored((cut ? first : first_read) + c, width);
  }
};

// Layout of a pair of rows in shared memory, in floats: for each row first the columns of the first
// image, then those of the second.
inline constexpr int kUniformRow = kStripColumns;
inline constexpr int kUniformPair = 4 * kUniformRow;

template <class T>
struct PixelsOfLane {
  T a[kColumns];
  T b[kColumns];

  __device__ void load(SharedPlace row) {
    row.load_elements(a);
    (row + kUniformRow).load_elements(b);
  }
  __device__ void store(SharedPlace row) const {
    row.store_elements(a);
    (row + kUniformRow).store_elements(b);
  }
};

// For the images that `VectorRows` takes: each lane copies one vector of a row.
template <class T>
class CopiedVectors {
 public:
  using Element = T;
  static constexpr bool kAligned = true;

  static bool apply(const Image& a, const Image& b, const Geometry& geometry) {
    return VectorRows<T>::apply(a, b, geometry);
  }

  __device__ CopiedVectors(const Image& a, const Image& b, const Geometry& geometry,
                           std::int64_t image, std::int64_t channel, const UniformColumns& columns,
                           int first_row) {
    const auto first_of = [&](const Image& x) {
      const std::int64_t plane = image * x.stride[0] + channel * x.stride[1];
      return settled(static_cast<const char*>(x.data) +
                     (plane + columns.first_read) * static_cast<std::int64_t>(sizeof(T)));
    };
    a_ = first_of(a);
    b_ = first_of(b);
    step_ = static_cast<int>(a.stride[3] * sizeof(T));
    offset_ = first_row * step_;
    twice_last_ = 2 * (static_cast<int>(geometry.size[1]) - 1) * step_;
  }

  __device__ void begin() {}

  // Begins to copy the next two rows, mirrored at the borders.
  __device__ void copy_pair(SharedPlace to) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const unsigned offset = next_offset();
      (to + 2 * row * kUniformRow).template copy<kBytes>(a_ + offset);
      (to + (2 * row + 1) * kUniformRow).template copy<kBytes>(b_ + offset);
    }
    commit_copies();
  }

  __device__ void next(PixelsOfLane<T>& row) {
    const unsigned offset = next_offset();
    load_columns(a_ + offset, row.a);
    load_columns(b_ + offset, row.b);
  }

 private:
  static constexpr int kBytes = kColumns * sizeof(T);

  __device__ unsigned next_offset() {
    const int distance = abs(offset_);
    offset_ += step_;
    return static_cast<unsigned>(max(min(distance, twice_last_ - distance), 0));
  }

  const char* a_;
  const char* b_;
  int step_;
  int offset_;
  int twice_last_;
};

// For any strides; those of columns fit 32 bits, so that one multiply-add computes an address. An
// asynchronous copy has at least four bytes. A pair of rows of smaller elements is therefore loaded
// into registers, and goes to shared memory from there.
template <class T>
class CopiedElements {
 public:
  using Element = T;
  static constexpr bool kAligned = false;

  __device__ CopiedElements(const Image& a, const Image& b, const Geometry& geometry,
                            std::int64_t image, std::int64_t channel, const UniformColumns& columns,
                            int first_row)
      : a_(a, image, channel),
        b_(b, image, channel),
        height_(static_cast<int>(geometry.size[1])),
        row_(first_row) {
    for (int c = 0; c < kColumns; ++c)
      columns_[c] = columns.column(c, static_cast<int>(geometry.size[2]));
  }

  // Called before the first copy_pair().
  __device__ void begin() {
    if constexpr (!kCopies) load_pair();
  }

  __device__ void copy_pair(SharedPlace to) {
    if constexpr (kCopies) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int y = next_row();
        const char *a = a_.row(y), *b = b_.row(y);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const SharedPlace at = to + (2 * row * kUniformRow + c);
          at.template copy<4>(a_.element(a, columns_[c]));
          (at + kUniformRow).template copy<4>(b_.element(b, columns_[c]));
        }
      }
      commit_copies();
    } else {
      pair_[0].store(to);
      pair_[1].store(to + 2 * kUniformRow);
      load_pair();
    }
  }

  __device__ void next(PixelsOfLane<T>& row) {
    const int y = next_row();
    const char *a = a_.row(y), *b = b_.row(y);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      row.a[c] = load_element<T>(a_.element(a, columns_[c]));
      row.b[c] = load_element<T>(b_.element(b, columns_[c]));
    }
  }

 private:
  static constexpr bool kCopies = sizeof(T) == 4;

  class Plane {
   public:
    __device__ Plane(const Image& x, std::int64_t image, std::int64_t channel)
        : data_(static_cast<const char*>(x.data) +
                (image * x.stride[0] + channel * x.stride[1]) * kSize),
          row_stride_(x.stride[3]),
          column_bytes_(static_cast<int>(x.stride[4] * kSize)) {}

    __device__ const char* row(int y) const { return data_ + y * row_stride_ * kSize; }
    __device__ const char* element(const char* row, int column) const {
      return row + std::int64_t{column} * column_bytes_;
    }

   private:
    static constexpr std::int64_t kSize = sizeof(T);

    const char* data_;
    const std::int64_t& row_stride_;
    int column_bytes_;
  };

  __device__ int next_row() { return max(mirror(row_++, height_), 0); }

  __device__ void load_pair() {
    next(pair_[0]);
    next(pair_[1]);
  }

  const Plane a_;
  const Plane b_;
  const int height_;
  int row_;
  int columns_[kColumns];
  PixelsOfLane<T> pair_[2];
};

}  // namespace syncfree::ssim
