// Short contiguous rows of scores, as in channels-last images: a warp copies its rows to shared
// memory in whole vectors, then each thread walks a row of its own.
#include "accuracy/launch_job.cuh"
#include "accuracy/score_row.cuh"
#include "accuracy/tally.cuh"

namespace syncfree::accuracy {
namespace {

constexpr int kThreads = kStagedRowThreads;
constexpr int kVectors = 6;  // of a thread, in flight together

// A word of padding after each 32 spreads rows of every length over the banks of shared memory, and
// the four words of adjacent vectors too.
__device__ unsigned int padded(unsigned int word) {
  return word + word / 32;
}

// The scores of 32 rows, one after another.
template <class T>
class StagedRows {
 public:
  __device__ explicit StagedRows(unsigned int* words) : words_(words) {}

  // Copies `count` scores from an aligned address. Warp-wide; all lanes may read afterwards.
  __device__ void copy(const T* scores, unsigned int count) {
    const unsigned int lane = threadIdx.x % 32;
    const unsigned int vectors = count / kVectorLength<T>;
    const auto* body = reinterpret_cast<const uint4*>(scores);
    __syncwarp();  // the previous rows have been read
    for (unsigned int first = lane; first < vectors; first += 32 * kVectors) {
      uint4 loaded[kVectors] = {};
#pragma unroll
      for (unsigned int i = 0; i < kVectors; ++i)
        if (first + 32 * i < vectors) loaded[i] = body[first + 32 * i];
#pragma unroll
      for (unsigned int i = 0; i < kVectors; ++i)
        if (first + 32 * i < vectors) store(first + 32 * i, loaded[i]);
    }
    for (unsigned int i = vectors * kVectorLength<T> + lane; i < count; i += 32)
      *place(i) = syncfree::detail::bit_cast<BitsOf<T>>(scores[i]);
    __syncwarp();
  }

  __device__ T score(unsigned int i) const { return syncfree::detail::bit_cast<T>(*place(i)); }

 private:
  __device__ void store(unsigned int vector, const uint4& words) {
    unsigned int* at = words_ + padded(4 * vector);  // no padding lies within a vector
    at[0] = words.x;
    at[1] = words.y;
    at[2] = words.z;
    at[3] = words.w;
  }

  __device__ BitsOf<T>* place(unsigned int i) const {
    constexpr unsigned int kPerWord = 4 / sizeof(T);
    return reinterpret_cast<BitsOf<T>*>(words_ + padded(i / kPerWord)) + i % kPerWord;
  }

  unsigned int* words_;
};

// The class of the greatest score: NaN is the greatest, the first of equals stays.
template <class T>
__device__ unsigned int predict(const StagedRows<T>& rows, unsigned int row, unsigned int classes) {
  unsigned int predicted = 0;
  float best = to<float>(rows.score(row));
#pragma unroll 4
  for (unsigned int c = 1; c < classes; ++c) {
    const float score = to<float>(rows.score(row + c));
    if (!(score <= best) && best == best) {
      best = score;
      predicted = c;
    }
  }
  return predicted;
}

// How many classes are ahead of the target.
template <class T>
__device__ unsigned int rank(const StagedRows<T>& rows, unsigned int row, unsigned int classes,
                             unsigned int target) {
  const T score_of_target = rows.score(row + target);
  const RankBounds<T> bounds(score_of_target);
  unsigned int ahead = 0;
#pragma unroll 4
  for (unsigned int c = 0; c < target; ++c) ahead += exceeds(rows.score(row + c), bounds.before);
  if (is_nan(score_of_target)) return ahead;  // nothing after it is ahead of it
#pragma unroll 4
  for (unsigned int c = target + 1; c < classes; ++c)
    ahead += exceeds(rows.score(row + c), bounds.after);
  return ahead;
}

template <class T, Walk kWalk>
__global__ void __launch_bounds__(kThreads, kStagedRowBlocksPerMultiprocessor)
    walk_staged_rows(const __grid_constant__ CountJob job) {
  extern __shared__ unsigned int shared[];
  BlockTally<kThreads> tally(job, shared);
  const auto classes = static_cast<unsigned int>(job.classes);
  const std::int64_t units = job.group_count * job.blocks_per_group;
  const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  StagedRows<T> rows(shared + job.shared_copies * job.class_cells +
                     warp * staged_words(job.classes * sizeof(T)));

  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t group = divide(unit, job.blocks_per_group);
    const std::int64_t turn = unit - group * job.blocks_per_group;
    const Offsets base = job.groups(group);
    const T* scores = static_cast<const T*>(job.preds) + base.preds;
    tally.open();
    for (std::int64_t tile = turn * kThreads; tile < job.element_count;
         tile += static_cast<std::int64_t>(job.blocks_per_group) * kThreads) {
      const std::int64_t first = tile + warp * 32, element = first + lane;
      const std::int64_t left = job.element_count - first;
      if (left <= 0) break;
      rows.copy(scores + first * classes,
                static_cast<unsigned int>(min(left, std::int64_t{32})) * classes);
      if (element >= job.element_count) continue;
      const std::int64_t target =
          load_label(job.target, job.target_dtype, base.target + job.elements(element).target,
                     job.rule.truncate_target);
      if (!tally.admit(group, element, target)) continue;
      unsigned int predicted = 0;
      if constexpr (kWalk != Walk::kRank) predicted = predict(rows, lane * classes, classes);
      if constexpr (kWalk == Walk::kPrediction)
        tally.add(group, predicted == target, target, predicted);
      else
        tally.add_rank(group,
                       rank(rows, lane * classes, classes, static_cast<unsigned int>(target)),
                       target, predicted);
    }
    tally.close(group,
                [&] { return share_of(job.element_count, kThreads, turn, job.blocks_per_group); });
  }
  finish_groups(job);
}

template <class T>
cudaError_t launch_for(const CountJob& job, cudaStream_t stream) {
  const std::size_t words = kThreads / 32 * staged_words(job.classes * sizeof(T));
  const auto launch = [&](void (*kernel)(CountJob)) {
    return launch_job(kernel, kThreads, job.shared_bytes() + words * sizeof(unsigned int), stream,
                      job);
  };
  switch (walk_of(job)) {
    case Walk::kPrediction:
      return launch(walk_staged_rows<T, Walk::kPrediction>);
    case Walk::kRank:
      return launch(walk_staged_rows<T, Walk::kRank>);
    default:
      return launch(walk_staged_rows<T, Walk::kBoth>);
  }
}

}  // namespace

cudaError_t launch_staged_rows(const CountJob& job, cudaStream_t stream) {
  return dispatch_score_dtype(job.preds_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) <= 4)
      return launch_for<T>(job, stream);
    else
      return cudaErrorInvalidValue;  // no plan chooses it
  });
}

}  // namespace syncfree::accuracy
