// Vector code that finds the top class and the ranks of classes. A plane holds the scores of one
// class at adjacent positions, a row those of all classes at one position. A part of
// accuracy_cpu_kernel.h, compiled with it for each instruction set: no include guard.

// Class indices and ranks are held in lanes as wide as the scores.
template <class T>
inline constexpr std::int64_t kMostLaneIndex = sizeof(T) == 2 ? 0x7fff : 0x7fffffff;

template <class Lane>
struct VectorOf {
  typedef Lane type __attribute__((vector_size(SYNCFREE_VECTOR_BYTES)));
};
template <class Lane>
using Vector = typename VectorOf<Lane>::type;

template <class Lane>
inline constexpr int kLanes = SYNCFREE_VECTOR_BYTES / sizeof(Lane);

template <class Lane>
inline Vector<Lane> load(const void* data) {
  Vector<Lane> v;
  memcpy(&v, data, sizeof(v));
  return v;
}

template <class V>
inline void store(void* data, V v) {
  memcpy(data, &v, sizeof(v));
}

template <class V>
inline std::int64_t sum_lanes(V v) {
  std::int64_t sum = 0;
  for (unsigned i = 0; i < sizeof(V) / sizeof(v[0]); ++i) sum += v[i];
  return sum;
}

// ordered_key's order in lanes: floats as they are, 16-bit types as sign-magnitude integers turned
// into two's complement. `rises` asks whether a key replaces the best so far; `exceeds` and
// `reaches` need a target that is not NaN unless kNanHasKey.
template <class T>
struct Order {
  using Lane = T;
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using Mask = Vector<Index>;
  static constexpr bool kNanHasKey = false;
  static inline Vector<Lane> key(Vector<Lane> raw) { return raw; }
  static inline Mask rises(Vector<Lane> key, Vector<Lane> best) {
    return ~(key <= best) & (best == best);
  }
  static inline Mask exceeds(Vector<Lane> key, Vector<Lane> target) { return ~(key <= target); }
  static inline Mask reaches(Vector<Lane> key, Vector<Lane> target) { return ~(key < target); }
};

template <std::int16_t kInfinity>
struct PackedOrder {
  using Lane = std::int16_t;
  using Index = std::int16_t;
  using Mask = Vector<Index>;
  static constexpr bool kNanHasKey = true;
  static inline Vector<Lane> key(Vector<Lane> raw) {
    const Vector<Lane> sign = raw >> 15, most = Vector<Lane>{} + Lane{0x7fff};
    return (raw & most) > kInfinity ? most : (raw ^ (sign & most)) - sign;
  }
  static inline Mask rises(Vector<Lane> key, Vector<Lane> best) { return key > best; }
  static inline Mask exceeds(Vector<Lane> key, Vector<Lane> target) { return key > target; }
  static inline Mask reaches(Vector<Lane> key, Vector<Lane> target) { return key >= target; }
};
template <>
struct Order<Half> : PackedOrder<FloatFormat<Half>::kInfinity> {};
template <>
struct Order<BFloat16> : PackedOrder<FloatFormat<BFloat16>::kInfinity> {};

template <class T>
inline Vector<typename Order<T>::Lane> load_keys(const T* scores) {
  return Order<T>::key(load<typename Order<T>::Lane>(scores));
}

// Any stride, one score after another.

template <class T>
std::int64_t argmax_strided(const T* scores, std::int64_t stride, std::int64_t classes) {
  std::int64_t best = 0;
  auto best_key = ordered_key(scores[0]);
  for (std::int64_t c = 1; c < classes; ++c) {
    const auto key = ordered_key(scores[c * stride]);
    best = key > best_key ? c : best;
    best_key = key > best_key ? key : best_key;
  }
  return best;
}

// How many classes are ahead of the label, or top_k if there are more.
template <class T>
std::int64_t rank_strided(const T* scores, std::int64_t stride, std::int64_t classes,
                          std::int64_t label, std::int64_t top_k) {
  const auto key = ordered_key(scores[label * stride]);
  std::int64_t rank = 0;
  for (std::int64_t c = 0; c < classes && rank < top_k; ++c)
    rank += is_ahead(ordered_key(scores[c * stride]), c, key, label);
  return rank;
}

// Planes. The running results of a tile of positions stay in L1, and each plane of scores is read
// in long runs. Hardware prefetchers follow a few streams, and planes a power of two apart share
// cache sets: walking all classes of a narrow column takes three times as long.

inline constexpr int kPlanes = 6;  // at once, to spare loads and stores of the running results

template <class T>
struct ArgmaxTile {
  using O = Order<T>;
  using Lane = typename O::Lane;
  using Index = typename O::Index;

  Lane best[kBlock];
  Index where[kBlock];

  template <int kCount>
  void add_planes(const T* scores, std::int64_t stride, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes<Lane>) {
      auto best_here = load<Lane>(best + i);
      auto where_here = load<Index>(where + i);
      for (int p = 0; p < kCount; ++p) {
        const auto key = load_keys(scores + p * stride + i);
        const auto rises = O::rises(key, best_here);
        best_here = rises ? key : best_here;
        where_here = rises ? Vector<Index>{} + static_cast<Index>(first + p) : where_here;
      }
      store(best + i, best_here);
      store(where + i, where_here);
    }
  }

  void run(const T* scores, std::int64_t stride, std::int64_t classes, std::int64_t count,
           std::int64_t* out) {
    for (std::int64_t i = 0; i < count; i += kLanes<Lane>) {
      store(best + i, load_keys(scores + i));
      store(where + i, Vector<Index>{});
    }
    std::int64_t c = 1;
    for (; c + kPlanes <= classes; c += kPlanes)
      add_planes<kPlanes>(scores + c * stride, stride, c, count);
    for (; c < classes; ++c) add_planes<1>(scores + c * stride, stride, c, count);
    for (std::int64_t i = 0; i < count; ++i) out[i] = where[i];
  }
};

template <class T>
struct RankTile {
  using O = Order<T>;
  using Lane = typename O::Lane;
  using Index = typename O::Index;

  Lane target[kBlock];
  Index label[kBlock];
  Index rank[kBlock];

  template <int kCount>
  void add_planes(const T* scores, std::int64_t stride, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes<Lane>) {
      const auto target_here = load<Lane>(target + i);
      const auto label_here = load<Index>(label + i);
      auto rank_here = load<Index>(rank + i);
      for (int p = 0; p < kCount; ++p) {
        const auto key = load_keys(scores + p * stride + i);
        const auto before = Vector<Index>{} + static_cast<Index>(first + p) < label_here;
        // A mask is -1 where it is true.
        rank_here -= O::exceeds(key, target_here) | ((key == target_here) & before);
      }
      store(rank + i, rank_here);
    }
  }

  void run(const T* scores, std::int64_t stride, std::int64_t classes, std::int64_t count,
           std::int64_t top_k, Find find, const std::int64_t* labels, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_class = labels[i] >= 0 && labels[i] < classes;
      label[i] = static_cast<Index>(is_class ? labels[i] : 0);
      memcpy(&target[i], scores + label[i] * stride + i, sizeof(T));
      rank[i] = 0;
    }
    for (std::int64_t i = 0; i < count; i += kLanes<Lane>)
      store(target + i, O::key(load<Lane>(target + i)));
    std::int64_t c = 0;
    for (; c + kPlanes <= classes; c += kPlanes)
      add_planes<kPlanes>(scores + c * stride, stride, c, count);
    for (; c < classes; ++c) add_planes<1>(scores + c * stride, stride, c, count);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t ahead = rank[i];
      if (!O::kNanHasKey && target[i] != target[i]) [[unlikely]]
        ahead = rank_strided(scores + i, stride, classes, label[i], top_k);
      const bool found = label[i] == labels[i] && (find == Find::kRank || ahead < top_k);
      out[i] = !found ? kOther : find == Find::kRank ? ahead : labels[i];
    }
  }
};

// Rows of contiguous classes.

// The row is folded into columns: class = fold * kColumns + column.
template <class T>
std::int64_t argmax_row(const T* row, std::int64_t classes) {
  using O = Order<T>;
  using Index = typename O::Index;
  constexpr int kVectors = 4, kStep = kLanes<typename O::Lane>, kColumns = kVectors * kStep;
  const std::int64_t folds = classes / kColumns;
  if (folds < 1 || folds > kMostLaneIndex<T>) return argmax_strided(row, 1, classes);
  Vector<typename O::Lane> best[kVectors];
  Vector<Index> where[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) best[v] = load_keys(row + v * kStep);
  for (std::int64_t fold = 1; fold < folds; ++fold)
    for (int v = 0; v < kVectors; ++v) {
      const auto key = load_keys(row + fold * kColumns + v * kStep);
      const auto rises = O::rises(key, best[v]);
      best[v] = rises ? key : best[v];
      where[v] = rises ? Vector<Index>{} + static_cast<Index>(fold) : where[v];
    }
  std::int64_t winner = where[0][0] * kColumns;
  auto winner_key = ordered_key(row[winner]);
  const auto consider = [&](std::int64_t c) {
    const auto key = ordered_key(row[c]);
    const bool ahead = (key > winner_key) | ((key == winner_key) & (c < winner));
    winner = ahead ? c : winner;
    winner_key = ahead ? key : winner_key;
  };
  for (int i = 1; i < kColumns; ++i)
    consider(where[i / kStep][i % kStep] * std::int64_t{kColumns} + i);
  for (std::int64_t c = folds * kColumns; c < classes; ++c) consider(c);
  return winner;
}

// How many of `count` scores are ahead of the target's; not exact once it reaches `enough`.
template <class T, bool kTiesCount>
std::int64_t count_rivals(const T* scores, std::int64_t count,
                          Vector<typename Order<T>::Lane> target, std::int64_t enough) {
  using O = Order<T>;
  constexpr int kStep = kLanes<typename O::Lane>;
  // A wrong prediction mostly shows in the first scores; later, a look costs more than it saves.
  constexpr std::int64_t kFirstChunk = 512, kChunk = 4096;
  const auto comes_before = [target](Vector<typename O::Lane> key) {
    return kTiesCount ? O::reaches(key, target) : O::exceeds(key, target);
  };
  std::int64_t rivals = 0, i = 0;
  for (std::int64_t chunk = kFirstChunk; i + kStep <= count && rivals < enough; chunk = kChunk) {
    const std::int64_t end = i + chunk < count ? i + chunk : count;
    typename O::Mask lanes = {};
#pragma GCC unroll 4
    for (; i + kStep <= end; i += kStep) lanes -= comes_before(load_keys(scores + i));
    rivals += sum_lanes(lanes);
  }
  if (i == count || rivals >= enough) return rivals;
  Vector<typename O::Lane> rest = {};
  memcpy(&rest, scores + i, static_cast<std::size_t>(count - i) * sizeof(T));
  const auto mask = comes_before(O::key(rest));
  for (int lane = 0; lane < count - i; ++lane) rivals -= mask[lane];
  return rivals;
}

// As `rank_strided`, but it may be more than top_k.
template <class T>
std::int64_t rank_row(const T* row, std::int64_t classes, std::int64_t label, std::int64_t top_k) {
  using O = Order<T>;
  typename O::Lane score;
  memcpy(&score, row + label, sizeof(T));
  if (!O::kNanHasKey && score != score) return rank_strided(row, 1, classes, label, top_k);
  const auto target = O::key(Vector<typename O::Lane>{} + score);
  std::int64_t rank = count_rivals<T, true>(row, label, target, top_k);
  if (rank < top_k)
    rank += count_rivals<T, false>(row + label + 1, classes - label - 1, target, top_k - rank);
  return rank;
}
