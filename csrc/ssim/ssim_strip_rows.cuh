// How a warp reads the rows of one strip: 128 columns, four a lane, and a halo on both sides.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ssim/settled_address.cuh"
#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {

inline constexpr int kColumns = 4;  // of one lane
inline constexpr int kStripColumns = 32 * kColumns;

// Raw elements stay in registers while they are on their way; conversion waits for the load.
// One element of the halo is of a in the first lanes and of b in those from 16 on, two are of both
// in the first: a load more, and no exchange between lanes.
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
  // Of those that it reads. A lane beyond the image does as the last one inside, whatever the
  // layout: all lanes of a warp decide together.
  int first_read;
  int halo_column;
  int halo_slot;  // where the halo stands, counted from the strip's first column
  bool inside;    // the first of the lane's columns lies in the image

  // The mirror image of a column, or some column of the image where nobody uses the value.
  static __device__ int mirrored(int column, int width) {
    return max(mirror(min(column, 2 * (width - 1)), width), 0);
  }

  // `halo` columns on each side.
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

// One load of the lane's elements. Not through __ldg: such loads the compiler moves across
// barriers, to where they come too late.
template <class T, int kCount>
__device__ void load_columns(const void* from, T (&to)[kCount]) {
  using Vector = VectorOf<kCount * sizeof(T)>;
  static_assert(sizeof(Vector) == sizeof to);
  const Vector vector = *static_cast<const Vector*>(from);
  memcpy(to, &vector, sizeof to);
}

// Rows of both images at the same byte offset, four neighbours at one aligned address.
template <class T, int kHalos = 1>
class VectorRows {
 public:
  using Element = T;
  using Row = RowData<T, kColumns, kHalos>;
  static constexpr bool kAligned = true;

  static bool apply(const Image& a, const Image& b, const Geometry& geometry) {
    if (geometry.size[2] % kColumns != 0 || a.stride[3] != b.stride[3]) return false;
    if (a.stride[3] < 0) return false;  // mirroring takes offsets of rows for distances
    const std::int64_t size = sizeof(T);
    // The offset of a row runs past the plane by the rows in flight.
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

  // Loads the next row, mirrored at the borders, and some row of the image where nobody uses it.
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

// Brings rows of a strip into the second-level cache, two of both images at once, whose rows have
// the same offset: each lane a line of a strip that begins with one (others get their last one
// late).
class RowPrefetch {
 public:
  RowPrefetch() = default;
  __device__ RowPrefetch(const Job<float>& job, std::int64_t image, std::int64_t channel,
                         int strip_begin, int size) {
    const int lane = threadIdx.x % 32, lines = kStripColumns * size / kLine;
    const Image& from = lane % 2 == 0 ? job.preds : job.target;
    const std::int64_t plane = image * from.stride[0] + channel * from.stride[1];
    // The last line of the image where a strip ends beyond it.
    const int last = (static_cast<int>(job.geometry.size[2]) - 1) * size;
    const int line = min(strip_begin * size + min(lane / 4, lines - 1) * kLine, last);
    begin_ = static_cast<const char*>(from.data) + plane * size + line;
  }

  // `y` or the one below it, by the lane.
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

// Any strides.
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
