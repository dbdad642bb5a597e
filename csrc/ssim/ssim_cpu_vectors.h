// Vectors of one instruction set, and the formula on them.

template <class Real>
struct Lanes {
  static constexpr int kCount = SYNCFREE_VECTOR_BYTES / sizeof(Real);
  typedef Real Vector __attribute__((vector_size(SYNCFREE_VECTOR_BYTES)));
};

template <class Real>
inline auto load(const Real* from) {
  typename Lanes<Real>::Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class Vector, class Real>
inline void store(Real* to, Vector v) {
  __builtin_memcpy(to, &v, sizeof v);
}

template <class Vector>
struct Deficits {
  Vector similarity;
  Vector contrast;
};

// The deficits of SSIM and of its contrast term, by the formula of ssim_terms.cuh with s and d in
// one scale. The order of the comparisons lets NaN through.
template <class Vector, class Real>
inline Deficits<Vector> deficits(const Vector& s_mean, const Vector& s_variance,
                                 const Vector& d_mean, const Vector& d_variance, Real twice_c1,
                                 Real twice_c2) {
  const Vector t = s_mean * s_mean + twice_c1;
  const Vector u = (0 > s_variance ? Vector{} : s_variance) + twice_c2;
  const Vector w = d_mean * d_mean;
  const Vector v = 0 > d_variance ? Vector{} : d_variance;
  return {2 * (t * v + u * w) / ((t + w) * (u + v)), 2 * v / (u + v)};
}

// A pixel of the map. Rounding must not carry it below -1; NaN stays.
template <class Vector>
inline Vector ssim_of(const Vector& deficit) {
  const Vector ssim = 1 - deficit;
  return -1 > ssim ? Vector{} - 1 : ssim;
}
