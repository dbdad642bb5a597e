// The derivative of SSIM in one window, for scalars or for SIMD vectors.
//
// Has no include guard: it is included once for scalars and once for each instruction set, whose
// vector types may be used only by code inside its target region. The including file must define
// `inverse_of`.

// The terms of a window, for s or for d. A window adds weight * (level + slope * (x - mean)) to the
// gradient with respect to a pixel x that it covers, where weight is that pixel's tap.
template <class T>
struct PixelTerms {
  T level;
  T slope;
};

template <class T>
struct WindowGradient {
  PixelTerms<T> s;
  PixelTerms<T> d;
};

// With t = ms^2 + 2 C1, w = md^2, u = Vs + 2 C2 and v = Vd, SSIM is the product of the luminance
// term (t - w) / (t + w) and the contrast term (u - v) / (u + v), whose derivatives are
//   by ms:  4 ms w / (t + w)^2    by md: -4 md t / (t + w)^2
//   by Vs:  2 v / (u + v)^2       by Vd: -2 u / (u + v)^2.
// The derivative of a variance by a pixel x is 2 weight (x - mean). Equal images get gradients of
// exactly 0: only the derivative by Vd is not 0 then, and x - mean is 0 for d.
template <class Real, class T>
SYNCFREE_HD WindowGradient<T> window_gradient(const T& mean_s, const T& variance_s, const T& mean_d,
                                              const T& variance_d, const Constants<Real>& constants,
                                              const T& ssim_gradient, const T& contrast_gradient) {
  const T t = mean_s * mean_s + constants.twice_c1, w = mean_d * mean_d;
  const T u = (variance_s < 0 ? T{} : variance_s) + constants.twice_c2;
  const T v = variance_d < 0 ? T{} : variance_d;
  // Reciprocals first: squares of the denominators may leave the range of float.
  const T by_tw = inverse_of(t + w), by_uv = inverse_of(u + v);
  const T luminance = (t - w) * by_tw, contrast = (u - v) * by_uv;
  const T level = Real(4) * ssim_gradient * contrast * by_tw;
  const T slope = Real(4) * (ssim_gradient * luminance + contrast_gradient) * by_uv;
  return {{level * mean_s * (w * by_tw), slope * (v * by_uv)},
          {-level * mean_d * (t * by_tw), -slope * (u * by_uv)}};
}
