// How the lanes of a walk read rows of both images and write rows of their gradients.
#pragma once

#include "ssim/settled_address.cuh"
#include "ssim/ssim_backward_pixels.cuh"

namespace syncfree::ssim {

// A lane's elements of one row of preds and of the target, as they are loaded.
template <class T>
using RawRow = RowData<T, kWalkColumns>;

// Where the current plane begins in both images and in their gradients, uniform in a warp. In
// shared memory, since registers are scarce.
template <class T>
struct alignas(16) WalkPlanes {
  const T* preds;
  const T* target;
  T* grad_preds;
  T* grad_target;
};

// Reads a lane's columns of both images, and its column of the halo.
template <class Access>
class InputLane {
 public:
  using Element = typename Access::Element;

  __device__ InputLane(const BackwardJob<float>& job, const WalkPlanes<Element>& planes, int column,
                       int halo_column)
      : job_(job), planes_(planes), column_(column), halo_column_(halo_column) {}

  __device__ static void place(const BackwardJob<float>& job, WalkPlanes<Element>& planes,
                               std::int64_t plane) {
    const auto begin = [&](const auto& image) { return plane_offset(image, job.channels, plane); };
    planes = {static_cast<const Element*>(job.preds.data) + begin(job.preds),
              static_cast<const Element*>(job.target.data) + begin(job.target),
              static_cast<Element*>(job.grad_preds.data) + begin(job.grad_preds),
              static_cast<Element*>(job.grad_target.data) + begin(job.grad_target)};
    __syncwarp();
  }

  // Loads rows from `y` on, mirrored at the borders, or any row of the image where nobody uses it.
  template <int kRows>
  __device__ void load(int y, RawRow<Element> (&rows)[kRows]) const {
    const Element* const preds = settled(planes_.preds);
    const Element* const target = settled(planes_.target);
    const Element* const halo = threadIdx.x % 32 < 16 ? preds : target;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int last = static_cast<int>(job_.axes[1].size) - 1, distance = abs(y + r);
      const int row = max(min(distance, 2 * last - distance), 0);
      if constexpr (Access::kAligned) {
        // Offsets fit into 32 bits, and rows of both images have the same.
        const auto begin = static_cast<unsigned>(row) * static_cast<unsigned>(job_.preds.stride[3]);
        load_columns(preds + (begin + column_), rows[r].a);
        load_columns(target + (begin + column_), rows[r].b);
        rows[r].halo[0] = load_element<Element>(halo + (begin + halo_column_));
      } else {
        load_strided(job_.preds, preds, row, rows[r].a);
        load_strided(job_.target, target, row, rows[r].b);
        const Image& image = threadIdx.x % 32 < 16 ? job_.preds : job_.target;
        rows[r].halo[0] =
            load_element<Element>(halo + row * image.stride[3] + halo_column_ * image.stride[4]);
      }
    }
  }

 private:
  __device__ void load_strided(const Image& image, const Element* plane, int row,
                               Element (&x)[kWalkColumns]) const {
    const int width = static_cast<int>(job_.axes[2].size);
#pragma unroll
    for (int c = 0; c < kWalkColumns; ++c)
      x[c] = load_element<Element>(plane + row * image.stride[3] +
                                   LaneColumns::mirrored(column_ + c, width) * image.stride[4]);
  }

  const BackwardJob<float>& job_;
  const WalkPlanes<Element>& planes_;
  const int column_;
  const int halo_column_;
};

// The columns of one lane.
struct OutputColumns {
  int first;
  int first_read;  // a lane beyond the strip reads the columns of the last one inside
  int end;         // of the strip
};

// A lane's columns of outputs: reads the pixels there and writes their gradients.
template <class Access>
class OutputLane {
 public:
  using Element = typename Access::Element;

  __device__ OutputLane(const BackwardJob<float>& job, const WalkPlanes<Element>& planes)
      : job_(job), planes_(planes) {}

  __device__ void start(const OutputColumns& columns) { columns_ = columns; }

  __device__ bool wants_preds() const { return wants(job_.grad_preds); }
  __device__ bool wants_target() const { return wants(job_.grad_target); }
  __device__ void load(int y, Element (&preds)[kWalkColumns],
                       Element (&target)[kWalkColumns]) const {
    load(job_.preds, settled(planes_.preds), y, preds);
    load(job_.target, settled(planes_.target), y, target);
  }
  __device__ void store_preds(int y, const float (&x)[kWalkColumns]) const {
    store(job_.grad_preds, settled(planes_.grad_preds), y, x);
  }
  __device__ void store_target(int y, const float (&x)[kWalkColumns]) const {
    store(job_.grad_target, settled(planes_.grad_target), y, x);
  }

 private:
  __device__ bool wants(const GradientImage& gradient) const {
    return gradient.data != nullptr && columns_.first < columns_.end;
  }

  // Fits into 32 bits, which VectorPixelsOf::apply ensures.
  template <class Strided>
  __device__ static unsigned offset(const Strided& image, int y, int column) {
    return static_cast<unsigned>(y) * static_cast<unsigned>(image.stride[3]) + column;
  }

  __device__ void load(const Image& image, const Element* plane, int y,
                       Element (&x)[kWalkColumns]) const {
    if constexpr (Access::kAligned) {
      load_columns(plane + offset(image, y, columns_.first_read), x);
    } else {
      const int last = static_cast<int>(job_.axes[2].size) - 1;
#pragma unroll
      for (int c = 0; c < kWalkColumns; ++c)
        x[c] = plane[y * image.stride[3] + min(columns_.first_read + c, last) * image.stride[4]];
    }
  }

  __device__ void store(const GradientImage& gradient, Element* plane, int y,
                        const float (&x)[kWalkColumns]) const {
    if constexpr (Access::kAligned) {
      Element raw[kWalkColumns];
#pragma unroll
      for (int c = 0; c < kWalkColumns; ++c) raw[c] = Access::rounded(x[c]);
      VectorOf<sizeof(raw)> vector;
      memcpy(&vector, raw, sizeof(vector));
      *reinterpret_cast<VectorOf<sizeof(raw)>*>(plane + offset(gradient, y, columns_.first)) =
          vector;
    } else {
#pragma unroll
      for (int c = 0; c < kWalkColumns; ++c)
        if (columns_.first + c < columns_.end)
          plane[y * gradient.stride[3] + (columns_.first + c) * gradient.stride[4]] =
              Access::rounded(x[c]);
    }
  }

  const BackwardJob<float>& job_;
  const WalkPlanes<Element>& planes_;
  OutputColumns columns_;
};

}  // namespace syncfree::ssim
