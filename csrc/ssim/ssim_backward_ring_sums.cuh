// Sums of the terms of the windows around each pixel, row by row down a strip. As for window sums
// (ssim_ring_sums.cuh), four partial sums of each column are kept in registers and the last six
// rows of sums along a row in shared memory.
#pragma once

#include "ssim/ssim_backward_ring_memory.cuh"

namespace syncfree::ssim {

// The inputs of one step down a plane of terms: the terms around the lane's pixels in one row, and
// the lines of three and six rows ago that are combined with it.
struct TermInput {
  float x[kRingColumns];
  RingRows rows;
  LinePlace place;

  // `own` is the place of the terms of the lane's first column.
  __device__ void load(const SharedPlace& own, const LinePlace& lines) {
    load_terms(own, x);
    place = lines;
    rows.load(place);
  }
  static __device__ void load_terms(const SharedPlace& own, float (&x)[kRingColumns]) {
    static_assert(kReach == kColumns + 1);
    x[0] = (own + -kReach).load();
    (own + -kColumns).load_vector(x + 1);
    own.load_vector(x + kReach);
    (own + kColumns).load_vector(x + kReach + kColumns);
    x[kRingColumns - 1] = (own + 2 * kColumns).load();
  }
};

// The partial sums of one plane of terms.
class TermSums {
 public:
  __device__ void clear() { sums_.clear(); }

  // Adds a row, and gives the sums of the outputs that it completes. `ask_ahead` loads what the
  // next step needs.
  template <TapOrder kOrder, bool kAsksBeforeStore, class Ask>
  __device__ void add_row(const TermInput& input, float (&complete)[kColumns],
                          const Ask& ask_ahead) {
    float u[kColumns], outer[kColumns], third[kColumns];
    filter_row<kOrder>(input.x, u, [](float end, float sum) { return end + sum; });
    const LinePlace place = input.place;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      outer[c] = u[c] + input.rows.sixth[c];
      third[c] = input.rows.third[c];
    }
    if constexpr (kAsksBeforeStore) ask_ahead();
    place.now.store_vector(u);
    if constexpr (!kAsksBeforeStore) ask_ahead();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) complete[c] = sums_.add(c, outer[c], third[c]);
  }

  // For sums of levels: makes them relative to a pivot that is `delta` larger.
  __device__ void move(const TermSums& slopes, float delta) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int k = 0; k < OpenSums::kOpen; ++k)
        sums_.of[c][k] = fmaf(slopes.sums_.of[c][k], delta, sums_.of[c][k]);
  }

 private:
  OpenSums sums_;
};

}  // namespace syncfree::ssim
