// Weighted sums of rows, of which all passes of the gradient consist.

inline constexpr std::int64_t kLaneMultiple = 8;  // doubles in the widest vector

inline std::int64_t padded(std::int64_t count) {
  return (count + kLaneMultiple - 1) / kLaneMultiple * kLaneMultiple;
}

// out[i] = sum over k of weights[k] * in[k * stride + i], added to the old out[i] if kAdd. Works on
// whole vectors, so all rows must be padded.
template <bool kAdd>
void correlate(const double* in, std::int64_t stride, const double* weights, std::int64_t taps,
               std::int64_t count, double* out) {
  using Vector = Lanes<double>::Vector;
  constexpr int kCount = Lanes<double>::kCount;
  constexpr int kUnroll = 4;
  std::int64_t i = 0;
  for (; i + kUnroll * kCount <= count; i += kUnroll * kCount) {
    Vector sums[kUnroll];
    for (int u = 0; u < kUnroll; ++u) sums[u] = kAdd ? load(out + i + u * kCount) : Vector{};
    for (std::int64_t k = 0; k < taps; ++k)
      for (int u = 0; u < kUnroll; ++u)
        sums[u] += weights[k] * load(in + k * stride + i + u * kCount);
    for (int u = 0; u < kUnroll; ++u) store(out + i + u * kCount, sums[u]);
  }
  for (; i < count; i += kCount) {
    Vector sum = kAdd ? load(out + i) : Vector{};
    for (std::int64_t k = 0; k < taps; ++k) sum += weights[k] * load(in + k * stride + i);
    store(out + i, sum);
  }
}
