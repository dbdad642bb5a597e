// A contiguous row of scores in aligned 16-byte vectors: counting rivals and finding the maximum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "accuracy/accuracy_math.h"

namespace syncfree::accuracy {

template <class T>
inline constexpr int kVectorLength = 16 / static_cast<int>(sizeof(T));

template <class T>
__device__ T vector_element(const uint4& words, int i) {
  T values[kVectorLength<T>];
  memcpy(values, &words, sizeof(words));
  return values[i];
}

// Classes [0, head) and [tail, classes) lie outside the vectors.
template <class T>
struct ScoreRow {
  const T* scores;
  const uint4* body;
  unsigned int classes;
  unsigned int head;
  unsigned int vectors;

  __device__ ScoreRow(const T* row, unsigned int count) : scores(row), classes(count) {
    const unsigned int misaligned =
        static_cast<unsigned int>(reinterpret_cast<std::uintptr_t>(row) & 15) / sizeof(T);
    head = min((kVectorLength<T> - misaligned) % kVectorLength<T>, count);
    vectors = (count - head) / kVectorLength<T>;
    body = reinterpret_cast<const uint4*>(row + head);
  }

  __device__ unsigned int tail() const { return head + vectors * kVectorLength<T>; }
  __device__ unsigned int first_class(unsigned int vector) const {
    return head + vector * kVectorLength<T>;
  }
  __device__ T score(unsigned int c) const {
    return syncfree::detail::bit_cast<T>(reinterpret_cast<const BitsOf<T>*>(scores)[c]);
  }
};

// Rank: a rival is ahead if `!(score <= bound)`, which makes NaN the greatest. For rivals after the
// target, where ties lose, the bound is the target's score; for those before it, where ties win, it
// is the next value below.
template <class T>
struct RankBounds {
  T before;
  T after;

  // For a NaN target no bound excludes the NaN rivals after it: callers do not count those.
  __device__ explicit RankBounds(T target) : after(target) {
    using Bits = BitsOf<T>;
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    const Bits key = ordered_key(target);
    const Bits below = static_cast<Bits>(key - 1);
    // Below -inf this decodes to a NaN, which every rival exceeds.
    Bits bits = below & kSign ? static_cast<Bits>(below ^ kSign) : static_cast<Bits>(~below);
    if (bits == kSign) ++bits;  // -0 equals the +0 above it
    if (key == static_cast<Bits>(~Bits{0})) bits = FloatFormat<T>::kInfinity;
    before = syncfree::detail::bit_cast<T>(bits);
  }
};

template <class T>
__device__ bool is_nan(T score) {
  return !(to<ComputeOf<T>>(score) == to<ComputeOf<T>>(score));
}

template <class T>
__device__ bool exceeds(T score, T bound) {
  return !(to<ComputeOf<T>>(score) <= to<ComputeOf<T>>(bound));
}

template <class T>
inline constexpr bool kPacked = sizeof(T) == 2;

__device__ inline unsigned int exceed_mask(unsigned int pair, Half bound) {
  const __half limit = __ushort_as_half(bound.bits);
  return __hgtu2_mask(syncfree::detail::bit_cast<__half2>(pair), __half2(limit, limit));
}
__device__ inline unsigned int exceed_mask(unsigned int pair, BFloat16 bound) {
  const __nv_bfloat16 limit = __ushort_as_bfloat16(bound.bits);
  return __hgtu2_mask(syncfree::detail::bit_cast<__nv_bfloat162>(pair),
                      __nv_bfloat162(limit, limit));
}

// How many scores of a vector exceed the bound.
template <class T>
__device__ unsigned int count_exceeding(const uint4& words, T bound) {
  if constexpr (kPacked<T>) {
    constexpr unsigned int kOnes = 0x00010001u;
    const unsigned int sums =
        (exceed_mask(words.x, bound) & kOnes) + (exceed_mask(words.y, bound) & kOnes) +
        (exceed_mask(words.z, bound) & kOnes) + (exceed_mask(words.w, bound) & kOnes);
    return (sums & 0xffffu) + (sums >> 16);
  } else {
    unsigned int count = 0;
#pragma unroll
    for (int i = 0; i < kVectorLength<T>; ++i) count += exceeds(vector_element<T>(words, i), bound);
    return count;
  }
}

// Vectors of a row that a thread loads together: `first` and others `lanes` apart.
template <class T, int kCount>
struct RowChunk {
  unsigned int first;
  unsigned int lanes;
  uint4 words[kCount] = {};

  __device__ RowChunk(const ScoreRow<T>& row, unsigned int first, unsigned int lanes)
      : first(first), lanes(lanes) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (vector(i) < row.vectors) words[i] = row.body[vector(i)];
  }

  __device__ unsigned int vector(int i) const { return first + i * lanes; }
};

// Counts the classes ahead of the target, `lanes` threads together, a chunk at a time. Which
// vectors are read does not depend on the target's score: the first are loaded while it arrives.
template <class T>
class RankScan {
 public:
  __device__ RankScan(const ScoreRow<T>& row, unsigned int target, T score)
      : row_(row), target_(target), bounds_(score), target_is_nan_(is_nan(score)) {
    vectors_before_ =
        target > row.head ? min((target - row.head) / kVectorLength<T>, row.vectors) : 0;
    // Nothing after a NaN target is ahead of it.
    counted_vectors_ = target_is_nan_ ? vectors_before_ : row.vectors;
  }

  template <int kCount>
  __device__ unsigned int count(const RowChunk<T, kCount>& chunk) const {
    unsigned int count = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) count += count_vector(chunk.vector(i), chunk.words[i]);
    return count;
  }

  template <int kCount>
  __device__ unsigned int count_chunk(unsigned int first, unsigned int lanes) const {
    return count(RowChunk<T, kCount>(row_, first, lanes));
  }

  __device__ unsigned int count_vector(unsigned int vector, const uint4& words) const {
    if (vector >= counted_vectors_) return 0;
    return count_exceeding(words, vector < vectors_before_ ? bounds_.before : bounds_.after);
  }

  // What no chunk covers: the unaligned ends, and the ties in the vector that holds the target.
  __device__ unsigned int count_ends(unsigned int lane, unsigned int lanes) const {
    unsigned int count = 0;
#pragma unroll 1
    for (unsigned int c = lane; c < row_.head; c += lanes) count += is_ahead_of_target(c);
#pragma unroll 1
    for (unsigned int c = row_.tail() + lane; c < row_.classes; c += lanes)
      count += is_ahead_of_target(c);
    if (vectors_before_ < row_.vectors) {
      const unsigned int end = min(target_, row_.first_class(vectors_before_ + 1));
#pragma unroll 1
      for (unsigned int c = row_.first_class(vectors_before_) + lane; c < end; c += lanes) {
        const T rival = row_.score(c);
        count +=
            exceeds(rival, bounds_.before) && (target_is_nan_ || !exceeds(rival, bounds_.after));
      }
    }
    return count;
  }

 private:
  __device__ bool is_ahead_of_target(unsigned int c) const {
    const T rival = row_.score(c);
    return c < target_ ? exceeds(rival, bounds_.before)
                       : !target_is_nan_ && exceeds(rival, bounds_.after);
  }

  ScoreRow<T> row_;
  unsigned int target_;
  RankBounds<T> bounds_;
  bool target_is_nan_;
  unsigned int vectors_before_;
  unsigned int counted_vectors_;
};

// Maximum.

__device__ inline unsigned int packed_max(unsigned int a, unsigned int b, Half) {
  const __half2 larger =
      __hmax2_nan(syncfree::detail::bit_cast<__half2>(a), syncfree::detail::bit_cast<__half2>(b));
  return syncfree::detail::bit_cast<unsigned int>(larger);
}
__device__ inline unsigned int packed_max(unsigned int a, unsigned int b, BFloat16) {
  const __nv_bfloat162 larger = __hmax2_nan(syncfree::detail::bit_cast<__nv_bfloat162>(a),
                                            syncfree::detail::bit_cast<__nv_bfloat162>(b));
  return syncfree::detail::bit_cast<unsigned int>(larger);
}

template <class T>
__device__ BitsOf<T> greatest_key(const uint4& words) {
  if constexpr (kPacked<T>) {
    const unsigned int pair =
        packed_max(packed_max(words.x, words.y, T{}), packed_max(words.z, words.w, T{}), T{});
    return max(ordered_key(T{static_cast<std::uint16_t>(pair & 0xffffu)}),
               ordered_key(T{static_cast<std::uint16_t>(pair >> 16)}));
  } else {
    BitsOf<T> key = ordered_key(vector_element<T>(words, 0));
#pragma unroll
    for (int i = 1; i < kVectorLength<T>; ++i)
      key = max(key, ordered_key(vector_element<T>(words, i)));
    return key;
  }
}

// The greatest score that a thread met, and where: a class, or the first class of a vector.
template <class T>
struct Greatest {
  BitsOf<T> key = 0;
  unsigned int place = 0;

  __device__ void meet(BitsOf<T> other, unsigned int where) {
    if (other > key) {
      key = other;
      place = where;
    }
  }

  // The lowest class that has the key, for threads that hold the greatest key of the row.
  __device__ unsigned int resolve(const ScoreRow<T>& row) const {
    unsigned int c = place;
    if (c >= row.head && c < row.tail())
      while (ordered_key(row.score(c)) != key) ++c;
    return c;
  }
};

// Places are met in rising order, hence the first of equal keys stays. `see(vector, words)` is
// shown each vector.
template <class T, int kUnroll, class See>
__device__ Greatest<T> find_greatest(const ScoreRow<T>& row, unsigned int lane, unsigned int lanes,
                                     See&& see) {
  Greatest<T> greatest;
#pragma unroll 1
  for (unsigned int c = lane; c < row.head; c += lanes) greatest.meet(ordered_key(row.score(c)), c);
  for (unsigned int first = lane; first < row.vectors; first += kUnroll * lanes) {
    const RowChunk<T, kUnroll> chunk(row, first, lanes);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (chunk.vector(i) >= row.vectors) continue;
      greatest.meet(greatest_key<T>(chunk.words[i]), row.first_class(chunk.vector(i)));
      see(chunk.vector(i), chunk.words[i]);
    }
  }
#pragma unroll 1
  for (unsigned int c = row.tail() + lane; c < row.classes; c += lanes)
    greatest.meet(ordered_key(row.score(c)), c);
  return greatest;
}

}  // namespace syncfree::accuracy
