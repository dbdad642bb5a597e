// How a warp reads the rows of one strip: 128 columns, four per lane, and a halo on both sides.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ssim/settled_address.cuh"
#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {

inline constexpr int kColumns = 4;  // of one lane
inline constexpr int kStripColumns = 32 * kColumns;

// What a lane reads of one row. Elements are not converted while in flight, because a conversion
// would wait for the load. A single halo element is of a in the first 16 lanes and of b in the
// others. Of two, the first lanes have both: one load more, but no exchange between lanes.
template <class T, int kCount = kColumns, int kHalos = 1>
struct RowData {
  T a[kCount];
  T b[kCount];
  T halo[kHalos];
};

// Which columns a lane reads, as offsets from the start of the row.
template <int kCount>
struct LaneColumnsOf {
  int first;  // of the lane's columns
  // The first column that the lane reads. A lane beyond the image reads what the last one inside
  // does, whatever the layout: all lanes of a warp decide together about pivots.
  int first_read;
  int halo_column;
  int halo_slot;  // place of the halo column, counted from the strip's first column
  bool inside;    // the lane's first column lies in the image

  // The column that mirroring puts there. Further out, any column of the image, as its value is not
  // used.
  static __device__ int mirrored(int column, int width) {
    return max(mirror(min(column, 2 * (width - 1)), width), 0);
  }

  // `halo` is the number of columns on each side.
  __device__ LaneColumnsOf(int strip_begin, int width, int halo) {
    const int lane = threadIdx.x % 32;
    first = strip_begin + kCount * lane;
    first_read = min(first, (width - 1) / kCount * kCount);
    inside = first < width;
    // The halo on the right begins where the last lane with a column of the image ends.
    const int columns_inside = (width - strip_begin + kCount - 1) / kCount * kCount;
    const int k = min(lane % 16, 2 * halo - 1);
    halo_slot = k < halo ? k - halo : min(columns_inside, 32 * kCount) + k - halo;
    halo_column = mirrored(strip_begin + halo_slot, width);
  }
};

using LaneColumns = LaneColumnsOf<kColumns>;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>;

template <class T>
__device__ T load_element(const void* from) {
  return detail::bit_cast<T>(*static_cast<const BitsOf<T>*>(from));
}

template <int kBytes>
using VectorOf =
    std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, std::uint32_t>>;

// Loads the lane's elements at once. Not through __ldg: the compiler moves such loads across
// barriers, to where they come too late.
template <class T, int kCount>
__device__ void load_columns(const void* from, T (&to)[kCount]) {
  using Vector = VectorOf<kCount * sizeof(T)>;
  static_assert(sizeof(Vector) == sizeof to);
  const Vector vector = *static_cast<const Vector*>(from);
  memcpy(to, &vector, sizeof to);
}

// For images whose rows have the same byte offsets and in which four neighboring elements are one
// aligned vector.
template <class T, int kHalos = 1>
class VectorRows {
 public:
  using Element = T;
  using Row = RowData<T, kColumns, kHalos>;
  static constexpr bool kAligned = true;

  static bool apply(const Image& a, const Image& b, const Geometry& geometry) {
    if (geometry.size[2] % kColumns != 0 || a.stride[3] != b.stride[3]) return false;
    if (a.stride[3] < 0) return false;  // mirroring takes row offsets for distances
    const std::int64_t size = sizeof(T);
    // The 32-bit offset of a row runs past the plane by the rows in flight.
    if ((geometry.size[1] + 16) * 2 * a.stride[3] * size >= INT32_MAX) return false;
    for (const Image* image : {&a, &b}) {
      if (image->stride[4] != 1) return false;
      if (reinterpret_cast<std::uintptr_t>(image->data) % (kColumns * size) != 0) return false;
      for (int axis : {0, 1, 3})
        if (image->stride[axis] % kColumns != 0) return false;
    }
    return true;
  }

  __device__ VectorRows(const Image& a, const Image& b, const Geometry& geometry,
                        std::int64_t image, std::int64_t channel, const LaneColumns& columns,
                        int first_row) {
    const std::int64_t a_plane = image * a.stride[0] + channel * a.stride[1];
    const std::int64_t b_plane = image * b.stride[0] + channel * b.stride[1];
    const char* a_data = static_cast<const char*>(a.data) + a_plane * sizeof(T);
    const char* b_data = static_cast<const char*>(b.data) + b_plane * sizeof(T);
    const char* const first_halo = kHalos == 2 || threadIdx.x % 32 < 16 ? a_data : b_data;
    a_ = settled(a_data + columns.first_read * sizeof(T));
    b_ = settled(b_data + columns.first_read * sizeof(T));
    halo_[0] = settled(first_halo + columns.halo_column * sizeof(T));
    if constexpr (kHalos == 2) halo_[1] = settled(b_data + columns.halo_column * sizeof(T));
    step_ = static_cast<int>(a.stride[3] * sizeof(T));
    offset_ = first_row * step_;
    twice_last_ = 2 * (static_cast<int>(geometry.size[1]) - 1) * step_;
  }

  // Loads the next row, mirrored at the borders. Further out, any row of the image, as it is not
  // used.
  __device__ void next(Row& row) {
    const int distance = abs(offset_);
    const auto offset = static_cast<unsigned>(max(min(distance, twice_last_ - distance), 0));
    load_columns(a_ + offset, row.a);
    load_columns(b_ + offset, row.b);
#pragma unroll
    for (int i = 0; i < kHalos; ++i) row.halo[i] = load_element<T>(halo_[i] + offset);
    offset_ += step_;
  }

 private:
  const char* a_;
  const char* b_;
  const char* halo_[kHalos];
  int step_;
  int offset_;
  int twice_last_;
};

// Prefetches rows of a strip into the second-level cache, two rows of both images at once, one
// cache line per lane. The rows of both images have the same offsets. If a strip does not begin at
// a cache line, its last line is not prefetched and comes late.
class RowPrefetch {
 public:
  RowPrefetch() = default;
  __device__ RowPrefetch(const Job<float>& job, std::int64_t image, std::int64_t channel,
                         int strip_begin, int size) {
    const int lane = threadIdx.x % 32, lines = kStripColumns * size / kLine;
    const Image& from = lane % 2 == 0 ? job.preds : job.target;
    const std::int64_t plane = image * from.stride[0] + channel * from.stride[1];
    // If the strip ends beyond the image: the image's last line.
    const int last = (static_cast<int>(job.geometry.size[2]) - 1) * size;
    const int line = min(strip_begin * size + min(lane / 4, lines - 1) * kLine, last);
    begin_ = static_cast<const char*>(from.data) + plane * size + line;
  }

  // Prefetches the rows `y` and `y` + 1; each lane has one of them.
  __device__ void rows(int y, std::int64_t pitch, int height) const {
#ifdef __CUDA_ARCH__
    const int distance = abs(y + static_cast<int>(threadIdx.x) / 2 % 2);
    const int row = max(min(distance, 2 * (height - 1) - distance), 0);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(
        begin_ + static_cast<unsigned>(row) * static_cast<unsigned>(pitch))));
#endif
  }

 private:
  static constexpr int kLine = 128;

  const char* begin_;
};

// For any strides.
template <class T, int kHalos = 1>
class StridedRows {
 public:
  using Element = T;
  using Row = RowData<T, kColumns, kHalos>;
  static constexpr bool kAligned = false;

  __device__ StridedRows(const Image& a, const Image& b, const Geometry& geometry,
                         std::int64_t image, std::int64_t channel, const LaneColumns& columns,
                         int first_row)
      : a_image_(a),
        b_image_(b),
        height_(static_cast<int>(geometry.size[1])),
        row_(first_row),
        halo_column_(columns.halo_column) {
    const int width = static_cast<int>(geometry.size[2]);
    a_ = static_cast<const T*>(a.data) + image * a.stride[0] + channel * a.stride[1];
    b_ = static_cast<const T*>(b.data) + image * b.stride[0] + channel * b.stride[1];
    for (int c = 0; c < kColumns; ++c)
      columns_[c] = LaneColumns::mirrored(columns.first_read + c, width);
  }

  __device__ void next(Row& row) {
    const std::int64_t y = max(mirror(row_, height_), 0);
    const T* a = a_ + y * a_image_.stride[3];
    const T* b = b_ + y * b_image_.stride[3];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      row.a[c] = load_element<T>(a + columns_[c] * a_image_.stride[4]);
      row.b[c] = load_element<T>(b + columns_[c] * b_image_.stride[4]);
    }
    const T* const a_halo = a + halo_column_ * a_image_.stride[4];
    const T* const b_halo = b + halo_column_ * b_image_.stride[4];
    row.halo[0] = load_element<T>(kHalos == 2 || threadIdx.x % 32 < 16 ? a_halo : b_halo);
    if constexpr (kHalos == 2) row.halo[1] = load_element<T>(b_halo);
    ++row_;
  }

 private:
  const Image& a_image_;
  const Image& b_image_;
  const T* a_;
  const T* b_;
  int height_;
  int row_;
  int halo_column_;
  int columns_[kColumns];
};

}  // namespace syncfree::ssim
