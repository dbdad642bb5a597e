// Loads rows of pixels and puts them into shared memory, where the windows of a strip read them.
#pragma once

#include "ssim/settled_address.cuh"
#include "ssim/ssim_backward_ring_memory.cuh"

namespace syncfree::ssim {

// A row goes through three stages: `ask` issues its loads from global memory, `take` converts it to
// s and d in the registers of the lanes that own its columns, and `enter` stores it to shared
// memory.
template <class Access>
class GradientPixels {
 public:
  using Element = typename Access::Element;
  using Row = RowData<Element, kColumns, 2>;

  __device__ GradientPixels(const BackwardJob<float>& job, GradientMemory<Element>& memory)
      : job_(job), memory_(memory) {}

  __device__ void start(const GradientPiece& piece) {
    base_ = piece.base();
    const LaneColumns columns(base_, width(), kReach);
    first_ = columns.first;
    is_inside_ = columns.inside;
    halo_slot_ = columns.halo_slot;
    const auto begin = [&](const Image& image) {
      return static_cast<const Element*>(image.data) +
             plane_offset(image, job_.channels, piece.plane);
    };
    memory_.images = {begin(job_.preds), begin(job_.target)};
    memory_.pixels.minus_level = 0.0f;
    memory_.pixels.one = 1.0f;
  }

  // The first of the lane's columns.
  __device__ int first() const { return first_; }
  // Whether that column lies in the image.
  __device__ bool is_inside() const { return is_inside_; }

  // Loads row `y`, mirrored at the borders, or any row of the image where nobody uses the value.
  __device__ void ask(int y, Row& raw) const {
    const Element* const preds = settled(memory_.images.preds);
    const Element* const target = settled(memory_.images.target);
    // A lane beyond the image does the same as the last one inside, since all lanes of a warp
    // decide together on pivots.
    const int column = min(first_, (width() - 1) / kColumns * kColumns);
    const int row = row_of_image(y);
    if constexpr (Access::kAligned) {
      // Offsets fit into 32 bits, and rows of both images have the same.
      const auto pitch = static_cast<unsigned>(job_.preds.stride[3]);
      const auto begin = static_cast<unsigned>(row) * pitch;
      load_columns(preds + (begin + column), raw.a);
      load_columns(target + (begin + column), raw.b);
      // Beyond an edge of the image this is some other pixel, which its mirror image replaces later
      // (`mirror_edge`). The column is computed from its slot anew, since registers are scarce.
      const int at = static_cast<int>(begin) + base_ + anew(halo_slot_);
      const int last = (height() - 1) * static_cast<int>(pitch) + width() - 1;
      const auto halo = static_cast<unsigned>(min(max(at, 0), last));
      raw.halo[0] = load_element<Element>(preds + halo);
      raw.halo[1] = load_element<Element>(target + halo);
    } else {
      const auto load = [row](const Image& image, const Element* plane, int x) {
        return load_element<Element>(plane + row * image.stride[3] + x * image.stride[4]);
      };
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int x = LaneColumns::mirrored(column + c, width());
        raw.a[c] = load(job_.preds, preds, x);
        raw.b[c] = load(job_.target, target, x);
      }
      // Mirrored here too: if the last strip has a single column beside its margin, the one before
      // it reaches a pixel beyond the edge of the image.
      const int halo = LaneColumns::mirrored(base_ + halo_slot_, width());
      raw.halo[0] = load(job_.preds, preds, halo);
      raw.halo[1] = load(job_.target, target, halo);
    }
  }

  // Converts a row that was loaded. Returns the sums over the lane's columns.
  __device__ PixelSums take(const Row& raw) {
    halo_ = convert(raw, own_);
    return PixelSums::of(own_.s, own_.d);
  }

  // The row that was converted last.
  __device__ const OwnColumns<kColumns>& taken() const { return own_; }

  // Stores it to shared memory. Lanes without a halo column of their own repeat other lanes'
  // stores.
  __device__ void enter(const SharedPlace& own) const {
    if (is_inside_) {
      own.store_vector(own_.s);
      (own + kRowFloats).store_vector(own_.d);
    }
    const SharedPlace halo(memory_.rows + kMargin + anew(halo_slot_));
    halo.store(halo_.s);
    (halo + kRowFloats).store(halo_.d);
  }

  // Finds the level that is subtracted from s: the mean over rows of the strip, which are the same
  // wherever a piece begins.
  __device__ void find_level() {
    Row rows[kSamples];
#pragma unroll
    for (int i = 0; i < kSamples; ++i) ask(height() / (kSamples + 1) * (i + 1), rows[i]);
    float level = 0.0f;
#pragma unroll
    for (const Row& row : rows) {
      OwnColumns<kColumns> x;
      convert(row, x);
      level += mean_of_usual<LevelRules<RingWindow>>(PixelSums::over(x.s) * (1.0f / kColumns));
    }
    level *= 1.0f / kSamples;
    __syncwarp();
    memory_.pixels.minus_level = -level;
    memory_.windows.zero_s = memory_.outputs.zero_s =
        __fmul_rn(level, static_cast<float>(kTapSumOf<RingWindow>));
    __syncwarp();
  }

 private:
  static constexpr int kSamples = 3;  // rows of a strip from which its level is taken

  __device__ int height() const { return static_cast<int>(job_.axes[1].size); }
  __device__ int width() const { return static_cast<int>(job_.axes[2].size); }

  __device__ int row_of_image(int y) const {
    const int distance = abs(y);
    return max(min(distance, 2 * (height() - 1) - distance), 0);
  }

  __device__ SumDifference convert(const Row& raw, OwnColumns<kColumns>& x) const {
    RingPixelInputs k;
    SharedPlace(&memory_.pixels.scale).load_vector(&k.scale);
    return convert_row(
        raw,
        [k](float a, float b) {
          return SumDifference{fmaf(fmaf(a, k.one, b), k.scale, k.minus_level),
                               __fmul_rn(fmaf(a, k.one, -b), k.scale)};
        },
        x);
  }

  const BackwardJob<float>& job_;
  GradientMemory<Element>& memory_;
  int base_;  // the strip's first column of windows
  int first_;
  bool is_inside_;
  int halo_slot_;  // position of the lane's column of the halo, counted from `base_`
  OwnColumns<kColumns> own_;
  SumDifference halo_;
};

}  // namespace syncfree::ssim
