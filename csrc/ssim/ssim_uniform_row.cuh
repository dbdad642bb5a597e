// Sums along a row for the uniform window. Each of a lane's windows holds all of the lane's own
// columns, whose sum is therefore computed once.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

inline constexpr int kUniformWindowColumns = kColumns + 2 * UniformWindow::kHalo;

template <class Add>
__device__ void add_to_own_columns(const float (&x)[kUniformWindowColumns], float own,
                                   float (&row)[kColumns], const Add& add) {
  static_assert(UniformWindow::kTaps == 7 && kColumns == 4);
  const float left = add(x[1], add(x[2], own)), right = add(x[8], add(x[7], own));
  row[0] = add(x[0], left);
  row[1] = add(x[7], left);
  row[2] = add(x[2], right);
  row[3] = add(x[9], right);
}

// Sums of x and of x^2: 16 instructions in addition to the sums over the own columns, which the
// test for pivots needs anyway.
__device__ inline void filter_uniform(const float (&x)[kUniformWindowColumns], float own_sum,
                                      float own_square, float (&row_sum)[kColumns],
                                      float (&row_square)[kColumns]) {
  add_to_own_columns(x, own_sum, row_sum, [](float y, float sum) { return sum + y; });
  add_to_own_columns(x, own_square, row_square, [](float y, float sum) { return fmaf(y, y, sum); });
}

}  // namespace syncfree::ssim
