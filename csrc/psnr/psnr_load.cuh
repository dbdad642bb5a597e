// Reads two operands of any layout. All loaders of a type give a thread the same elements in the
// same order: a layout changes the loads, but no bit of the sum.
#pragma once

#include <type_traits>

#include "psnr/psnr_operands.cuh"

namespace syncfree::psnr {

// The elements of one 16-byte load.
template <class T>
inline constexpr int kVectorOf = 16 / sizeof(T);

template <class T>
using AccOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Held as words, since the compiler keeps arrays of narrower elements in memory. Positions are
// constants once loops are unrolled.
template <class T>
struct Vector {
  std::uint32_t word[4];

  __device__ T operator[](int k) const {
    T element;
    if constexpr (sizeof(T) == 8) {
      const std::uint64_t bits = static_cast<std::uint64_t>(word[2 * k + 1]) << 32 | word[2 * k];
      memcpy(&element, &bits, 8);
    } else if constexpr (sizeof(T) == 4) {
      memcpy(&element, &word[k], 4);
    } else {
      constexpr int kPerWord = 4 / sizeof(T);
      const std::uint32_t bits = word[k / kPerWord] >> (k % kPerWord * 8 * sizeof(T));
      memcpy(&element, &bits, sizeof(T));
    }
    return element;
  }

  // Into zeros, each position once.
  __device__ void put(int k, T element) {
    if constexpr (sizeof(T) == 8) {
      std::uint64_t bits;
      memcpy(&bits, &element, 8);
      word[2 * k] = static_cast<std::uint32_t>(bits);
      word[2 * k + 1] = static_cast<std::uint32_t>(bits >> 32);
    } else if constexpr (sizeof(T) == 4) {
      memcpy(&word[k], &element, 4);
    } else {
      constexpr int kPerWord = 4 / sizeof(T);
      std::uint32_t bits = 0;
      memcpy(&bits, &element, sizeof(T));
      word[k / kPerWord] |= bits << (k % kPerWord * 8 * sizeof(T));
    }
  }
};

template <class T>
struct Pair {
  Vector<T> preds;
  Vector<T> target;
};

__device__ inline bool is_aligned(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & 15) == 0;
}

// Types narrower than four bytes are read by the aligned words around them. Each of these words
// holds a wanted element, so that none lies outside the words that the tensor occupies.
template <class T>
__device__ Vector<T> load_unaligned(const T* from) {
  Vector<T> vector{};
  if constexpr (sizeof(T) < 4) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    const auto* words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
    const unsigned shift = static_cast<unsigned>(address & 3) * 8;
#pragma unroll
    for (int k = 0; k < 4; ++k) vector.word[k] = words[k];
    if (shift != 0) {
      const std::uint32_t next = words[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint64_t high = k < 3 ? vector.word[k + 1] : next;
        vector.word[k] = static_cast<std::uint32_t>((high << 32 | vector.word[k]) >> shift);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < kVectorOf<T>; ++k) vector.put(k, from[k]);
  }
  return vector;
}

// Not by streaming loads (__ldcs), although each element is used once: what they read is the first
// to leave the second-level cache, and images that were just made take 1.3 to 1.4 times as long.
template <class T>
__device__ Vector<T> load_vector(const T* from, bool aligned) {
  if (!aligned) return load_unaligned(from);
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  return {{raw.x, raw.y, raw.z, raw.w}};
}

// A loader stands at element `first` of a result and counts from there: i is a multiple of kVector.
// It serves kPlanes planes at once and has kAhead vectors of each in flight (0: it reads element by
// element only). With kBlocksPerMultiprocessor blocks of 256 threads, ContiguousLoader and
// PixelLoader have 64 KB an SM or more in flight, what HBM needs.

// Both operands of one type, the elements of a result contiguous.
template <class T>
struct ContiguousLoader {
  using Acc = AccOf<T>;
  using Raw = Pair<T>;
  static constexpr int kVector = kVectorOf<T>;
  static constexpr int kPlanes = 1;
  static constexpr int kAhead = 4;
  static constexpr int kBlocksPerMultiprocessor = 4;

  const T* preds;
  const T* target;
  bool aligned;

  __device__ ContiguousLoader(const Operands& o, std::int64_t result, std::int64_t first) {
    const PairOffsets base = place_of(o, result, 0, o.kept).offsets;
    preds = static_cast<const T*>(o.preds.data) + base.first + first;
    target = static_cast<const T*>(o.target.data) + base.second + first;
    aligned = is_aligned(preds) && is_aligned(target);
  }

  __device__ Raw load(int i) const {
    return {load_vector(preds + i, aligned), load_vector(target + i, aligned)};
  }
  __device__ static const Pair<T>& pair(const Raw& raw, int) { return raw; }

  __device__ Acc squared_error(int, int i, int count, const Clamp<Acc>& clamp) const {
    Acc sum = 0;
    for (int k = 0; k < count; ++k) {
      const Acc d = clamp(to<Acc>(preds[i + k])) - clamp(to<Acc>(target[i + k]));
      sum += d * d;
    }
    return sum;
  }
};

// Element by element through any strides; divides only where a row begins.
struct Walk {
  const Operands& o;
  PairOffsets base;
  std::int64_t index;
  Place place;

  __device__ Walk(const Operands& operands, const PairOffsets& base_of_result, std::int64_t i)
      : o(operands),
        base(base_of_result),
        index(i),
        place(place_of(operands, i, operands.kept, operands.preds.rank)) {}

  __device__ PairOffsets offsets() const {
    return {base.first + place.offsets.first, base.second + place.offsets.second};
  }
  __device__ void step() {
    ++index;
    if (--place.left == 0) {
      place = place_of(o, index, o.kept, o.preds.rank);
    } else {
      place.offsets.first += o.preds.stride[o.preds.rank - 1];
      place.offsets.second += o.target.stride[o.preds.rank - 1];
    }
  }
};

// Both operands of one type, any strides.
template <class T>
struct StridedLoader {
  using Acc = AccOf<T>;
  using Raw = Pair<T>;
  static constexpr int kVector = kVectorOf<T>;
  static constexpr int kPlanes = 1;
  static constexpr int kAhead = 2;
  static constexpr int kBlocksPerMultiprocessor = 3;

  const Operands& o;
  PairOffsets base;
  std::int64_t first;

  __device__ StridedLoader(const Operands& operands, std::int64_t result, std::int64_t from)
      : o(operands), base(place_of(o, result, 0, o.kept).offsets), first(from) {}

  __device__ const T* preds_at(std::int64_t offset) const {
    return static_cast<const T*>(o.preds.data) + offset;
  }
  __device__ const T* target_at(std::int64_t offset) const {
    return static_cast<const T*>(o.target.data) + offset;
  }

  __device__ static Vector<T> load_row(const T* from, std::int64_t stride) {
    if (stride == 1) return load_vector(from, is_aligned(from));
    Vector<T> vector{};
#pragma unroll
    for (int k = 0; k < kVector; ++k) vector.put(k, from[k * stride]);
    return vector;
  }

  __device__ Raw load(int i) const {
    Walk walk(o, base, first + i);
    const PairOffsets at = walk.offsets();
    const int last = o.preds.rank - 1;
    if (walk.place.left >= kVector)
      return {load_row(preds_at(at.first), o.preds.stride[last]),
              load_row(target_at(at.second), o.target.stride[last])};
    Raw raw{};
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      if (k > 0) walk.step();
      raw.preds.put(k, *preds_at(walk.offsets().first));
      raw.target.put(k, *target_at(walk.offsets().second));
    }
    return raw;
  }
  __device__ static const Pair<T>& pair(const Raw& raw, int) { return raw; }

  __device__ Acc squared_error(int, int i, int count, const Clamp<Acc>& clamp) const {
    Walk walk(o, base, first + i);
    Acc sum = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      if (k > 0) walk.step();
      const Acc d = clamp(to<Acc>(*preds_at(walk.offsets().first))) -
                    clamp(to<Acc>(*target_at(walk.offsets().second)));
      sum += d * d;
    }
    return sum;
  }
};

// Any strides and any pair of types. kCount is kVectorOf the common type.
template <class A, int kCount>
struct MixedLoader {
  using Acc = A;
  static constexpr int kVector = kCount;
  static constexpr int kPlanes = 1;
  static constexpr int kAhead = 0;
  static constexpr int kBlocksPerMultiprocessor = 4;

  const Operands& o;
  PairOffsets base;
  std::int64_t first;

  __device__ MixedLoader(const Operands& operands, std::int64_t result, std::int64_t from)
      : o(operands), base(place_of(o, result, 0, o.kept).offsets), first(from) {}

  __device__ Acc squared_error(int, int i, int count, const Clamp<Acc>& clamp) const {
    Walk walk(o, base, first + i);
    Acc sum = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      if (k > 0) walk.step();
      const Acc d = clamp(load_as<Acc>(o.preds.data, o.preds.dtype, walk.offsets().first)) -
                    clamp(load_as<Acc>(o.target.data, o.target.dtype, walk.offsets().second));
      sum += d * d;
    }
    return sum;
  }
};

}  // namespace syncfree::psnr
