// Turns a lane's pixels of one row into s and d, and reads these back from shared memory.
#pragma once

#include "ssim/shared_vectors.cuh"
#include "ssim/ssim_strip_levels.cuh"
#include "ssim/ssim_strip_rows.cuh"

namespace syncfree::ssim {

template <int kCount>
struct OwnColumns {
  float s[kCount];
  float d[kCount];
};

// Applies `sum_difference(a, b)` to the lane's own columns, and returns it for the lane's column of
// the halo. With one halo element per lane, the two images' elements are in different lanes until
// here (RowData).
template <class T, int kCount, int kHalos, class Convert>
__device__ SumDifference convert_row(const RowData<T, kCount, kHalos>& data,
                                     const Convert& sum_difference, OwnColumns<kCount>& own) {
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    const SumDifference x = sum_difference(to<float>(data.a[c]), to<float>(data.b[c]));
    own.s[c] = x.s;
    own.d[c] = x.d;
  }
  const float halo = to<float>(data.halo[0]);
  if constexpr (kHalos == 2)
    return sum_difference(halo, to<float>(data.halo[1]));
  else
    return sum_difference(halo, __shfl_down_sync(kWarp, halo, 16));
}

// Turns each of four bytes into the float 2^23 + byte, which holds the byte in its last bits.
__device__ inline void in_last_bits(const std::uint8_t (&bytes)[4], float (&x)[4]) {
  unsigned word;
  memcpy(&word, bytes, sizeof word);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[i] = detail::bit_cast<float>(__byte_perm(word, 0x4b000000u, 0x7440u + i));
}

// The mean of `mean` over the lanes of a warp where it is usual.
template <class Rules>
__device__ float mean_of_usual(float mean) {
  float lanes = 1.0f;
  if (!Rules::is_usual(mean)) mean = lanes = 0.0f;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    mean += __shfl_xor_sync(kWarp, mean, distance);
    lanes += __shfl_xor_sync(kWarp, lanes, distance);
  }
  return mean / fmaxf(lanes, 1.0f);
}

// Loads a lane's window of a row from shared memory; the lane has its own columns already.
template <int kHalo>
__device__ void load_window(const float* own, const float (&own_columns)[kColumns],
                            float (&x)[kColumns + 2 * kHalo]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) x[kHalo + c] = own_columns[c];
  if constexpr (kHalo > kColumns) {
    static_assert(kHalo == kColumns + 1);
    x[0] = own[-kHalo];
    load_vector(own - kColumns, x + 1);
    load_vector(own + kColumns, x + kHalo + kColumns);
    x[kColumns + 2 * kHalo - 1] = own[2 * kColumns];
  } else {
    float left[kColumns], right[kColumns];
    load_vector(own - kColumns, left);
    load_vector(own + kColumns, right);
#pragma unroll
    for (int i = 0; i < kHalo; ++i) {
      x[i] = left[kColumns - kHalo + i];
      x[kHalo + kColumns + i] = right[i];
    }
  }
}

}  // namespace syncfree::ssim
