// Loads pixels with interleaved channels: each load is a vector of adjacent memory, and the
// channels are sorted in registers.
#pragma once

#include "psnr/psnr_load.cuh"

namespace syncfree::psnr {

// Both operands of one type, each with interleaved channels (channels-last) or separate planes:
// reads the same pixels of all channels, so that every byte is fetched once.
template <class T, int kChannels>
struct PixelLoader {
  using Acc = AccOf<T>;
  static constexpr int kVector = kVectorOf<T>;
  static constexpr int kPlanes = kChannels;
  static constexpr int kAhead = 1;
  static constexpr int kBlocksPerMultiprocessor = 3;

  struct Image {
    const TensorView& view;
    const T* data;
    bool aligned;

    __device__ Image(const TensorView& v, std::int64_t offset)
        : view(v), data(static_cast<const T*>(v.data) + offset) {
      aligned = is_aligned(data) && (interleaved() || channel() % kVector == 0);
    }
    __device__ std::int64_t pixel() const { return view.stride[view.rank - 1]; }
    __device__ std::int64_t channel() const { return view.stride[view.rank - 2]; }
    __device__ bool interleaved() const { return pixel() != 1; }

    // kVector pixels from pixel i on, in the order of memory.
    __device__ void load(int i, Vector<T> (&raw)[kChannels]) const {
      const T* from = data + i * pixel();
      const std::int64_t step = interleaved() ? kVector : channel();
#pragma unroll
      for (int v = 0; v < kChannels; ++v) raw[v] = load_vector(from + v * step, aligned);
    }
    __device__ Vector<T> of_channel(const Vector<T> (&raw)[kChannels], int c) const {
      if (!interleaved()) return raw[c];
      Vector<T> vector{};
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const int at = k * kChannels + c;
        vector.put(k, raw[at / kVector][at % kVector]);
      }
      return vector;
    }
    __device__ T element(int i, int c) const { return data[i * pixel() + c * channel()]; }
  };

  struct Raw {
    Vector<T> preds[kChannels];
    Vector<T> target[kChannels];
  };

  Image preds;
  Image target;

  __device__ PixelLoader(const Operands& o, std::int64_t result, std::int64_t first)
      : PixelLoader(o, place_of(o, result, 0, o.kept).offsets,
                    place_of(o, first, o.kept, o.preds.rank).offsets) {}
  __device__ PixelLoader(const Operands& o, const PairOffsets& base, const PairOffsets& pixels)
      : preds(o.preds, base.first + pixels.first), target(o.target, base.second + pixels.second) {}

  __device__ Raw load(int i) const {
    Raw raw;
    preds.load(i, raw.preds);
    target.load(i, raw.target);
    return raw;
  }
  __device__ Pair<T> pair(const Raw& raw, int c) const {
    return {preds.of_channel(raw.preds, c), target.of_channel(raw.target, c)};
  }

  __device__ Acc squared_error(int c, int i, int count, const Clamp<Acc>& clamp) const {
    Acc sum = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const Acc d =
          clamp(to<Acc>(preds.element(i + k, c))) - clamp(to<Acc>(target.element(i + k, c)));
      sum += d * d;
    }
    return sum;
  }
};

// The number of channels if a PixelLoader can read the operands, otherwise 0: planes must be cut
// one by one and have a single stride each, and at least one operand must be interleaved.
inline int interleaved_channels(const Operands& o, const Pieces& pieces) {
  const int last = o.preds.rank - 1;
  if (pieces.plane == o.reduced || last - 1 < o.kept || o.preds.size[last] != pieces.plane)
    return 0;
  const std::int64_t channels = o.preds.size[last - 1];
  const auto interleaved = [&](const TensorView& view) {
    return view.stride[last] == channels && view.stride[last - 1] == 1;
  };
  const auto planar = [&](const TensorView& view) { return view.stride[last] == 1; };
  const bool any = interleaved(o.preds) || interleaved(o.target);
  const bool both =
      (interleaved(o.preds) || planar(o.preds)) && (interleaved(o.target) || planar(o.target));
  return any && both && (channels == 3 || channels == 4) ? static_cast<int>(channels) : 0;
}

}  // namespace syncfree::psnr
