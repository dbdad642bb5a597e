// Scores whose classes are not adjacent, as in images (N, C, H, W): a thread walks the classes of
// four elements, called pixels here.
#include "accuracy/launch_job.cuh"
#include "accuracy/score_row.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = 256;
constexpr int kPixels = 4;
constexpr int kTile = kThreads * kPixels;
constexpr int kBatch = 5;  // classes in flight
constexpr unsigned int kUnscored = 0xffffffffu;
template <class Compute>
constexpr Compute kLowest = -std::numeric_limits<Compute>::infinity();

template <class T>
struct Quad {
  T score[kPixels];
};

// Reads a thread's four pixels class after class, adjacent ones as one vector, others one by one.
template <class T, bool kVector>
class PixelScores {
 public:
  __device__ PixelScores(const CountJob& job, const Offsets& base,
                         const std::int64_t (&offsets)[kPixels])
      : class_stride_(job.class_stride) {
    const T* scores = static_cast<const T*>(job.preds) + base.preds;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) next_[i] = scores + offsets[i];
  }

  // The score of one class, for the pixel's rank. Only before the first `next`.
  __device__ T score(int pixel, unsigned int c) const {
    const std::int64_t offset = c * class_stride_;
    return load(kVector ? next_[0] + offset + pixel : next_[kVector ? 0 : pixel] + offset);
  }

  // The scores of the next kBatch classes, of which `left` remain.
  __device__ void next(unsigned int left, Quad<T> (&batch)[kBatch]) {
#pragma unroll
    for (unsigned int j = 0; j < kBatch; ++j) {
      batch[j] = Quad<T>{};
      if (j < left) batch[j] = load_quad();
#pragma unroll
      for (int i = 0; i < kLoads; ++i) next_[i] += class_stride_;
    }
  }

 private:
  static constexpr int kLoads = kVector ? 1 : kPixels;

  static __device__ T load(const T* score) {
    return syncfree::detail::bit_cast<T>(*reinterpret_cast<const BitsOf<T>*>(score));
  }

  __device__ Quad<T> load_quad() const {
    if constexpr (kVector) {
      using Vector = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
      return syncfree::detail::bit_cast<Quad<T>>(*reinterpret_cast<const Vector*>(next_[0]));
    } else {
      Quad<T> quad;
#pragma unroll
      for (int i = 0; i < kPixels; ++i) quad.score[i] = load(next_[i]);
      return quad;
    }
  }

  std::int64_t class_stride_;
  const T* next_[kLoads];
};

// The class of each pixel's greatest score so far.
template <class T>
class Prediction {
 public:
  using Compute = ComputeOf<T>;

  __device__ Prediction() {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      best_[i] = kLowest<Compute>;
      predicted[i] = 0;
    }
  }

  __device__ void meet(int i, unsigned int c, Compute score) {
    if (!(score <= best_[i]) && best_[i] == best_[i]) {  // NaN is the greatest, the first stays
      best_[i] = score;
      predicted[i] = c;
    }
  }

  unsigned int predicted[kPixels];

 private:
  Compute best_[kPixels];
};

// How many classes are ahead of each pixel's target so far.
template <class T>
class Rank {
 public:
  using Compute = ComputeOf<T>;

  template <bool kVector>
  __device__ Rank(const PixelScores<T, kVector>& scores, const unsigned int (&target)[kPixels],
                  unsigned int top_k)
      : top_k_(top_k) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const RankBounds<T> bounds(target[i] == kUnscored ? T{} : scores.score(i, target[i]));
      before_[i] = to<Compute>(bounds.before);
      after_[i] = to<Compute>(bounds.after);
      ahead_[i] = target[i] == kUnscored ? top_k : 0;
    }
  }

  __device__ void meet(int i, unsigned int c, Compute score, unsigned int target) {
    // Nothing after a NaN target is ahead of it.
    ahead_[i] +=
        c < target ? !(score <= before_[i]) : !(score <= after_[i]) && after_[i] == after_[i];
  }

  // Exact below top_k.
  __device__ unsigned int ahead(int i) const { return ahead_[i]; }

  // Whether any target of the warp may still be among the top_k.
  __device__ bool is_open() const {
    bool open = false;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) open |= ahead_[i] < top_k_;
    return __any_sync(0xffffffffu, open);
  }

 private:
  unsigned int top_k_;
  Compute before_[kPixels], after_[kPixels];
  unsigned int ahead_[kPixels];
};

// Calls `meet(pixel, class, score)` class after class while `goes_on()`, asked before each batch.
template <class T, bool kVector, class GoesOn, class Meet>
__device__ void walk(PixelScores<T, kVector>& scores, unsigned int classes, GoesOn&& goes_on,
                     Meet&& meet) {
  for (unsigned int first = 0; first < classes; first += kBatch) {
    if (!goes_on()) break;
    Quad<T> batch[kBatch];
    scores.next(classes - first, batch);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j >= classes) break;
#pragma unroll
      for (int i = 0; i < kPixels; ++i) meet(i, first + j, to<ComputeOf<T>>(batch[j].score[i]));
    }
  }
}

template <class T, bool kVector>
__device__ void predict(PixelScores<T, kVector>& scores, unsigned int classes,
                        unsigned int (&predicted)[kPixels]) {
  Prediction<T> prediction;
  walk(
      scores, classes, [] { return true; },
      [&](int i, unsigned int c, ComputeOf<T> score) { prediction.meet(i, c, score); });
#pragma unroll
  for (int i = 0; i < kPixels; ++i) predicted[i] = prediction.predicted[i];
}

template <class T, bool kVector>
__device__ void rank(PixelScores<T, kVector>& scores, unsigned int classes, unsigned int top_k,
                     const unsigned int (&target)[kPixels], unsigned int (&ahead)[kPixels]) {
  Rank<T> ranking(scores, target, top_k);
  walk(
      scores, classes, [&] { return ranking.is_open(); },
      [&](int i, unsigned int c, ComputeOf<T> score) { ranking.meet(i, c, score, target[i]); });
#pragma unroll
  for (int i = 0; i < kPixels; ++i) ahead[i] = ranking.ahead(i);
}

template <class T, bool kVector>
__device__ void predict_and_rank(PixelScores<T, kVector>& scores, unsigned int classes,
                                 unsigned int top_k, const unsigned int (&target)[kPixels],
                                 unsigned int (&predicted)[kPixels],
                                 unsigned int (&ahead)[kPixels]) {
  Prediction<T> prediction;
  Rank<T> ranking(scores, target, top_k);
  walk(
      scores, classes, [] { return true; },
      [&](int i, unsigned int c, ComputeOf<T> score) {
        prediction.meet(i, c, score);
        ranking.meet(i, c, score, target[i]);
      });
#pragma unroll
  for (int i = 0; i < kPixels; ++i) {
    predicted[i] = prediction.predicted[i];
    ahead[i] = ranking.ahead(i);
  }
}

template <class T, bool kVector, Walk kWalk>
__global__ void __launch_bounds__(kThreads,
                                  walk_blocks_per_multiprocessor(sizeof(T), kVector, kWalk))
    walk_classes(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int counters[];
  BlockTally<kThreads> tally(job, counters);
  const auto classes = static_cast<unsigned int>(job.classes);
  const std::int64_t units = job.group_count * job.blocks_per_group;
  constexpr int kStep = kVector ? 1 : kThreads;

  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t group = divide(unit, job.blocks_per_group);
    const std::int64_t turn = unit - group * job.blocks_per_group;
    const Offsets base = job.groups(group);
    tally.open();
    for (std::int64_t tile = turn * kTile; tile < job.element_count;
         tile += static_cast<std::int64_t>(job.blocks_per_group) * kTile) {
      const std::int64_t mine = tile + threadIdx.x * (kVector ? kPixels : 1);
      std::int64_t preds_at[kPixels], target_at[kPixels], labels[kPixels];
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        if (kVector && i > 0) {
          preds_at[i] = preds_at[0] + i;
          target_at[i] = target_at[0] + i * job.elements.target_stride[job.elements.rank - 1];
        } else {
          // Past the end the last pixels are read again, but not judged.
          const std::int64_t last = job.element_count - (kVector ? kPixels : 1);
          const Offsets at = job.elements(min(mine + i * kStep, last));
          preds_at[i] = at.preds;
          target_at[i] = base.target + at.target;
        }
      }
      load_labels(job.target, job.target_dtype, target_at, job.rule.truncate_target, labels);

      unsigned int target[kPixels], predicted[kPixels], ahead[kPixels];
      bool any = false;
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        const std::int64_t element = mine + i * kStep;
        const bool scored = element < job.element_count && tally.admit(group, element, labels[i]);
        target[i] = scored ? static_cast<unsigned int>(labels[i]) : kUnscored;
        predicted[i] = 0;
        any |= scored;
      }
      if (!__any_sync(0xffffffffu, any)) continue;

      PixelScores<T, kVector> scores(job, base, preds_at);
      const auto top_k = static_cast<unsigned int>(job.top_k);
      if constexpr (kWalk == Walk::kPrediction)
        predict(scores, classes, predicted);
      else if constexpr (kWalk == Walk::kRank)
        rank(scores, classes, top_k, target, ahead);
      else
        predict_and_rank(scores, classes, top_k, target, predicted, ahead);
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        if (target[i] == kUnscored) continue;
        if constexpr (kWalk == Walk::kPrediction)
          tally.add(group, predicted[i] == target[i], target[i], predicted[i]);
        else
          tally.add_rank(group, ahead[i], target[i], predicted[i]);
      }
    }
    tally.close(group,
                [&] { return share_of(job.element_count, kTile, turn, job.blocks_per_group); });
  }
  finish_groups(job);
}

template <class T, Walk kWalk>
cudaError_t launch_walk(const CountJob& job, cudaStream_t stream) {
  const auto launch = [&](void (*kernel)(CountJob)) {
    return launch_job(kernel, kThreads, job.shared_bytes(), stream, job);
  };
  if constexpr (sizeof(T) < 8) {
    if (job.vectorized) return launch(walk_classes<T, true, kWalk>);
  }
  return launch(walk_classes<T, false, kWalk>);
}

template <class T>
cudaError_t launch_for(const CountJob& job, cudaStream_t stream) {
  switch (walk_of(job)) {
    case Walk::kPrediction:
      return launch_walk<T, Walk::kPrediction>(job, stream);
    case Walk::kRank:
      return launch_walk<T, Walk::kRank>(job, stream);
    default:
      return launch_walk<T, Walk::kBoth>(job, stream);
  }
}

}  // namespace

cudaError_t launch_class_strided(const CountJob& job, cudaStream_t stream) {
  return dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
    return launch_for<typename decltype(tag)::type>(job, stream);
  });
}

}  // namespace syncfree::accuracy
