// Sum of squared differences over a short contiguous run (core/for_each_isa.h includes it).

// Each lane is an accumulator of its own: the order of the sum is fixed by the vector width, and
// loads, differences and squares of several vectors are in flight at once.
template <class T>
double psnr_squared_error(const void* preds, const void* target, std::int64_t count, bool clamped,
                          double low, double high) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int kLanes = 4 * SYNCFREE_VECTOR_BYTES / static_cast<int>(sizeof(Acc));
  const T* a = static_cast<const T*>(preds);
  const T* b = static_cast<const T*>(target);
  const Clamp<Acc> clamp{clamped, static_cast<Acc>(low), static_cast<Acc>(high), {}, {}};
  Acc lane[kLanes] = {};
  std::int64_t i = 0;
  if (clamped) {
    for (; i + kLanes <= count; i += kLanes)
      for (int k = 0; k < kLanes; ++k) {
        const Acc d = clamp(to<Acc>(a[i + k])) - clamp(to<Acc>(b[i + k]));
        lane[k] += d * d;
      }
  } else {
    for (; i + kLanes <= count; i += kLanes)
      for (int k = 0; k < kLanes; ++k) {
        const Acc d = to<Acc>(a[i + k]) - to<Acc>(b[i + k]);
        lane[k] += d * d;
      }
  }
  double sum = 0.0;
  for (int k = 0; k < kLanes; ++k) sum += lane[k];
  for (; i < count; ++i) {
    const Acc d = clamp(to<Acc>(a[i])) - clamp(to<Acc>(b[i]));
    sum += static_cast<double>(d) * d;
  }
  return sum;
}

// Adds the squared error of one element to each of several adjacent results.
template <class T>
void psnr_add_squared_errors(const void* preds, const void* target, std::int64_t count,
                             bool clamped, double low, double high, double* sums) {
  const T* a = static_cast<const T*>(preds);
  const T* b = static_cast<const T*>(target);
  const Clamp<float> clamp{clamped, static_cast<float>(low), static_cast<float>(high), {}, {}};
  const auto add = [&](auto&& limited) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = limited(to<float>(a[i])) - limited(to<float>(b[i]));
      sums[i] += static_cast<double>(d) * d;
    }
  };
  if (clamped)
    add(clamp);
  else
    add([](float x) { return x; });
}

// Converts contiguous elements to the type of the arithmetic.
template <class From, class T>
void psnr_widen(const void* from, std::int64_t count, void* out) {
  const From* x = static_cast<const From*>(from);
  T* y = static_cast<T*>(out);
  for (std::int64_t i = 0; i < count; ++i) y[i] = to<T>(x[i]);
}

// Splits pixels with interleaved channels into planes `pitch` apart.
template <class T, int kChannels>
void psnr_split_pixels(const T* from, std::int64_t count, T* planes, std::int64_t pitch) {
  static_assert(kChannels >= 2 && kChannels <= 4);
  T* __restrict first = planes;
  T* __restrict second = planes + pitch;
  T* __restrict third = planes + 2 * pitch;
  T* __restrict fourth = planes + 3 * pitch;
  for (std::int64_t i = 0; i < count; ++i) {
    first[i] = from[kChannels * i];
    second[i] = from[kChannels * i + 1];
    if constexpr (kChannels > 2) third[i] = from[kChannels * i + 2];
    if constexpr (kChannels > 3) fourth[i] = from[kChannels * i + 3];
  }
}
