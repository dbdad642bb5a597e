// The Gaussian in fewer operations down a column: eight instead of ten.
#pragma once

#include "ssim/ssim_strip_window.cuh"

namespace syncfree::ssim {

// With u(n) for the sums along row n, sums over rows three apart,
//   e(rho)(n) = u(n) + rho u(n - 3) + u(n - 6),
// serve two windows each: the window that ends with row n is
//   a(n) + k1 b(n - 1) + k0 c(n - 2) + k1 b(n - 3) + a(n - 4)
// where a, b and c are e of three different rho. If the end taps are 1, the other taps have five
// values, which determine the five factors. All are positive: nothing cancels.
struct ColumnTaps {
  float a, b, c;  // rho
  float k1, k0;
  double sum_of_a, sum_of_b, sum_of_c, sum;

  SYNCFREE_HD constexpr ColumnTaps()
      : a(), b(), c(), k1(), k0(), sum_of_a(), sum_of_b(), sum_of_c(), sum() {
    k1 = static_cast<float>(exact(1));
    k0 = static_cast<float>(exact(2));
    a = static_cast<float>(exact(3) - exact(1));
    b = static_cast<float>((exact(4) - 1.0) / exact(1));
    c = static_cast<float>(exact(5) / exact(2));
    sum_of_a = 2.0 + a;
    sum_of_b = 2.0 + b;
    sum_of_c = 2.0 + c;
    sum = 2.0 * (sum_of_a + k1 * sum_of_b) + k0 * sum_of_c;
  }

  // The sum of the taps in a window to which the first k + 1 of its five terms have been added.
  SYNCFREE_HD constexpr double sum_of_open(int k) const {
    const double steps[] = {sum_of_a, k1 * sum_of_b, k0 * sum_of_c, k1 * sum_of_b};
    double total = 0.0;
    for (int i = 0; i <= k; ++i) total += steps[i];
    return total;
  }

 private:
  static SYNCFREE_HD constexpr double exact(int k) {
    const double offset = k - GaussianWindow::kHalo, sigma = GaussianWindow::kSigma;
    constexpr int kFarthest = GaussianWindow::kHalo * GaussianWindow::kHalo;
    return exp_series((kFarthest - offset * offset) / (2.0 * sigma * sigma));
  }
};

// The taps along a row, of which the moved one suits the taps down a column.
using RingWindow = StripTaps<11, false, 2, -1>;

template <>
inline constexpr double kTapSumOf<RingWindow> = RingWindow{}.row_sum * ColumnTaps{}.sum;

static_assert(is_nearly_a_float(kTapSumOf<RingWindow>));

}  // namespace syncfree::ssim
