// Sums of what windows pass back, around each pixel, as the rows of a strip go by: as window sums
// (ssim_ring_sums.cuh), four of each column under way in registers, the last six rows in shared
// memory.
#pragma once

#include "ssim/ssim_backward_ring_memory.cuh"

namespace syncfree::ssim {

// What a step down one plane of terms takes in: those around the lane's pixels in one row, and the
// rows that they meet.
struct TermInput {
  float x[kRingColumns];
  RingRows rows;
  LinePlace place;

  // `own` is where the terms of the lane's first column stand.
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

// Of one plane of terms.
class TermSums {
 public:
  __device__ void clear() { sums_.clear(); }

  // Takes in a row and gives out the sums of the outputs that end with it. What the next step needs
  // is asked for on the way.
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

  // These are levels; makes them those at a pivot that lies `delta` further.
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
