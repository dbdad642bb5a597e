// Reads two operands of any layout and sums the squares of their differences.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/merge_dims.h"
#include "core/tensor_view.h"
#include "psnr/psnr.h"
#include "psnr/psnr_math.h"

namespace syncfree::psnr {

// The problem with its dimensions merged: results x reduced elements.
struct Operands {
  TensorView preds;
  TensorView target;
  int kept;  // leading dimensions of the views that index results
  std::int64_t results;
  std::int64_t reduced;
  bool contiguous;  // the elements of one result follow each other in both
};

inline Operands make_operands(const Problem& problem) {
  Operands o{problem.preds, problem.target, problem.kept, 1, 1, false};
  merge_dims(o.preds, o.target, o.kept, o.preds.rank);
  o.kept = merge_dims(o.preds, o.target, 0, o.kept);
  for (int i = 0; i < o.preds.rank; ++i) (i < o.kept ? o.results : o.reduced) *= o.preds.size[i];
  const int inner = o.preds.rank - 1;
  o.contiguous =
      o.preds.rank == o.kept ||
      (o.preds.rank == o.kept + 1 && o.preds.stride[inner] == 1 && o.target.stride[inner] == 1);
  return o;
}

struct Offsets {
  std::int64_t preds;
  std::int64_t target;
};

// Offsets of logical element `index` of dimensions [begin, end).
__device__ inline Offsets offsets_of(const Operands& o, std::int64_t index, int begin, int end) {
  Offsets offsets{0, 0};
  for (int d = end - 1; d >= begin; --d) {
    const std::int64_t size = o.preds.size[d];
    // The 32-bit division is several times cheaper than the 64-bit one.
    const std::int64_t quotient = (index | size) >> 32 == 0 ? static_cast<std::uint32_t>(index) /
                                                                  static_cast<std::uint32_t>(size)
                                                            : index / size;
    const std::int64_t coordinate = index - quotient * size;
    offsets.preds += coordinate * o.preds.stride[d];
    offsets.target += coordinate * o.target.stride[d];
    index = quotient;
  }
  return offsets;
}

// The 16 elements or fewer of one 16 B load. Every loader of a type deals out elements to threads
// by this number, so that layout changes the loads and never the order of a sum.
template <class T>
inline constexpr int kVectorOf = 16 / sizeof(T);

template <class T, int kCount>
struct alignas(16) Vector {
  T element[kCount];
};

template <class T, int kCount>
struct Pair {
  Vector<T, kCount> preds;
  Vector<T, kCount> target;
};

// Both operands of one type, the elements of a result side by side.
template <class T>
struct ContiguousLoader {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Raw = Pair<T, kVectorOf<T>>;
  static constexpr int kVector = kVectorOf<T>;
  static constexpr bool kLoadsAhead = true;

  const T* preds;
  const T* target;
  bool aligned;

  __device__ ContiguousLoader(const Operands& o, std::int64_t result) {
    const Offsets base = offsets_of(o, result, 0, o.kept);
    preds = static_cast<const T*>(o.preds.data) + base.preds;
    target = static_cast<const T*>(o.target.data) + base.target;
    aligned =
        ((reinterpret_cast<std::uintptr_t>(preds) | reinterpret_cast<std::uintptr_t>(target)) &
         15) == 0;
  }

  // Streaming loads: each element is used once and should not push others out of L2.
  __device__ Raw load(std::int64_t i) const {
    Raw raw;
    if (aligned) {
      const uint4 a = __ldcs(reinterpret_cast<const uint4*>(preds + i));
      const uint4 b = __ldcs(reinterpret_cast<const uint4*>(target + i));
      memcpy(&raw.preds, &a, 16);
      memcpy(&raw.target, &b, 16);
    } else {
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        raw.preds.element[k] = preds[i + k];
        raw.target.element[k] = target[i + k];
      }
    }
    return raw;
  }

  __device__ Acc squared_error(std::int64_t i, int count, const Clamp<Acc>& clamp) const {
    Acc sum = 0;
    for (int k = 0; k < count; ++k) {
      const Acc d = clamp(to<Acc>(preds[i + k])) - clamp(to<Acc>(target[i + k]));
      sum += d * d;
    }
    return sum;
  }
};

// Any strides and any pair of types. kCount is kVectorOf the common type.
template <class A, int kCount>
struct StridedLoader {
  using Acc = A;
  static constexpr int kVector = kCount;
  static constexpr bool kLoadsAhead = false;

  const Operands& o;
  Offsets base;

  __device__ StridedLoader(const Operands& operands, std::int64_t result)
      : o(operands), base(offsets_of(operands, result, 0, operands.kept)) {}

  __device__ Offsets at(std::int64_t i) const {
    const Offsets inner = offsets_of(o, i, o.kept, o.preds.rank);
    return {base.preds + inner.preds, base.target + inner.target};
  }

  // Neighbours mostly share all but the last coordinate: divide once, then step along it.
  __device__ Acc squared_error(std::int64_t i, int count, const Clamp<Acc>& clamp) const {
    const int last = o.preds.rank - 1;
    const std::int64_t size = o.preds.size[last];
    Offsets offsets = at(i);
    std::int64_t left = size - i % size;
    Acc sum = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      if (left-- == 0) {
        offsets = at(i + k);
        left = size - 1;
      }
      const Acc d = clamp(load_as<Acc>(o.preds.data, o.preds.dtype, offsets.preds)) -
                    clamp(load_as<Acc>(o.target.data, o.target.dtype, offsets.target));
      sum += d * d;
      offsets.preds += o.preds.stride[last];
      offsets.target += o.target.stride[last];
    }
    return sum;
  }
};

template <class T, int kCount, class Acc>
__device__ Acc squared_error(const Pair<T, kCount>& raw, const Clamp<Acc>& clamp) {
  // Bytes: four squares an instruction. The sum stays below 2^24, where float is exact too, so both
  // branches give the same bits.
  if constexpr (sizeof(T) == 1) {
    if (!clamp.enabled) {
      unsigned a[4], b[4], sum = 0;
      memcpy(a, &raw.preds, 16);
      memcpy(b, &raw.target, 16);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned d = __vabsdiffu4(a[k], b[k]);
        sum = __dp4a(d, d, sum);
      }
      return static_cast<Acc>(sum);
    }
  }
  Acc sum = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Acc d = clamp(to<Acc>(raw.preds.element[k])) - clamp(to<Acc>(raw.target.element[k]));
    sum += d * d;
  }
  return sum;
}

// One thread's share of the block's group [base, base + threads * vector * kUnroll): where the
// loader can, all loads before the first use; sums in the accumulator type over the group and in
// double above it.
template <class Loader, int kThreads, int kUnroll>
__device__ double group_squared_error(const Loader& loader,
                                      const Clamp<typename Loader::Acc>& clamp, std::int64_t base,
                                      std::int64_t end) {
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kThreads) * Loader::kVector;
  const std::int64_t first = base + static_cast<std::int64_t>(threadIdx.x) * Loader::kVector;
  typename Loader::Acc sum = 0;
  if constexpr (Loader::kLoadsAhead) {
    if (base + kStep * kUnroll <= end) {
      typename Loader::Raw raw[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) raw[u] = loader.load(first + u * kStep);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) sum += squared_error(raw[u], clamp);
      return static_cast<double>(sum);
    }
  }
#pragma unroll 1
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kStep;
    if (i < end)
      sum += loader.squared_error(i, static_cast<int>(min(end - i, std::int64_t{Loader::kVector})),
                                  clamp);
  }
  return static_cast<double>(sum);
}

}  // namespace syncfree::psnr
