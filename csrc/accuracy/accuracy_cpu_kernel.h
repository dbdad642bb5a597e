// The steps that take a block of positions to its counts on the CPU: labels, predictions, tally.
// Compiled for each instruction set by core/for_each_isa.h, hence no include guard and no includes
// but its other half.
namespace {

using namespace syncfree::accuracy;
using namespace syncfree::accuracy::cpu;

#include "accuracy/accuracy_cpu_scores.h"

template <class T>
inline constexpr std::int64_t kPackedScores = 16384 / sizeof(T);

template <class T>
void predict_columns(const ScoreRun& run, const std::int64_t* labels, std::int64_t* out) {
  const T* scores = static_cast<const T*>(run.scores);
  if (run.find == Find::kRank || (run.find == Find::kHit && run.top_k > 1)) {
    RankTile<T> tile;
    tile.run(scores, run.class_stride, run.classes, run.count, run.top_k, run.find, labels, out);
  } else {
    ArgmaxTile<T> tile;
    tile.run(scores, run.class_stride, run.classes, run.count, out);
  }
}

// Few classes in another layout: copied into planes, a piece that fits in L1 at a time.
template <class T>
void predict_packed(const ScoreRun& run, const std::int64_t* labels, std::int64_t* out) {
  using Lane = typename Order<T>::Lane;
  constexpr std::int64_t kStep = kLanes<Lane>;
  T packed[kPackedScores<T>];
  std::int64_t padded_labels[kStep], padded_out[kStep];
  const std::int64_t most = kPackedScores<T> / run.classes / kStep * kStep;
  for (std::int64_t begin = 0; begin < run.count;) {
    const std::int64_t left = run.count - begin;
    const std::int64_t count = left >= kStep ? (left < most ? left / kStep * kStep : most) : left;
    const std::int64_t width = count < kStep ? kStep : count;
    const T* scores = static_cast<const T*>(run.scores) + begin * run.position_stride;
    for (std::int64_t i = 0; i < width; ++i) {
      const T* here = scores + (i < count ? i : 0) * run.position_stride;
      for (std::int64_t c = 0; c < run.classes; ++c)
        packed[c * width + i] = here[c * run.class_stride];
    }
    const ScoreRun columns{packed, 1, width, run.classes, width, run.top_k, run.find};
    if (count >= kStep) {
      predict_columns<T>(columns, labels + begin, out + begin);
    } else {
      for (std::int64_t i = 0; i < kStep; ++i)
        padded_labels[i] = labels[begin + (i < count ? i : 0)];
      predict_columns<T>(columns, padded_labels, padded_out);
      memcpy(out + begin, padded_out, static_cast<std::size_t>(count) * sizeof(out[0]));
    }
    begin += count;
  }
}

template <class T>
std::int64_t predict_one(const T* scores, const ScoreRun& run, std::int64_t label) {
  if (label == kSkipped) return kOther;
  const bool row = run.class_stride == 1;
  if (run.find == Find::kClass)
    return row ? argmax_row(scores, run.classes)
               : argmax_strided(scores, run.class_stride, run.classes);
  if (label < 0 || label >= run.classes) return kOther;
  const std::int64_t ahead =
      row ? rank_row(scores, run.classes, label, run.top_k)
          : rank_strided(scores, run.class_stride, run.classes, label, run.top_k);
  if (run.find == Find::kRank) return ahead;
  return ahead < run.top_k ? label : kOther;
}

// Finds what `run.find` asks for at each position.
template <class T>
void predict(const ScoreRun& run, const std::int64_t* labels, std::int64_t* out) {
  constexpr std::int64_t kStep = kLanes<typename Order<T>::Lane>;
  ScoreRun rest = run;
  std::int64_t done = 0;
  if (run.position_stride == 1 && run.classes <= kMostLaneIndex<T>) {
    done = run.count / kStep * kStep;
    rest.count = done;
    predict_columns<T>(rest, labels, out);
  }
  rest.count = run.count - done;
  const T* scores = static_cast<const T*>(run.scores) + done * run.position_stride;
  rest.scores = scores;
  // Longer rows of contiguous classes fill enough vectors by themselves.
  constexpr std::int64_t kMostPacked = kPackedScores<T> / kStep;
  const std::int64_t few =
      run.class_stride != 1 ? kMostPacked : (run.find != Find::kClass ? 4 : 16) * kStep;
  if (run.classes <= few && run.classes <= kMostPacked) {
    predict_packed<T>(rest, labels + done, out + done);
  } else {
    for (std::int64_t i = 0; i < rest.count; ++i)
      out[done + i] = predict_one(scores + i * run.position_stride, run, labels[done + i]);
  }
}

// Binary predictions: positive above `bound` or, with kBoundCounts, at or above it. Returns whether
// any score lies outside [0, 1].
template <bool kBoundCounts, class T>
inline __attribute__((always_inline)) bool threshold_strided(const T* scores, std::int64_t stride,
                                                             std::int64_t count, double bound,
                                                             std::int64_t* out) {
  const auto exact_bound = static_cast<ComputeOf<T>>(bound);
  int outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto score = to<ComputeOf<T>>(scores[i * stride]);
    out[i] = kBoundCounts ? score >= exact_bound : score > exact_bound;
    outside |= (score < 0) | (score > 1);  // `||` would keep the loop from being vectorized
  }
  return outside != 0;
}

template <class T>
bool threshold(const ScoreRun& run, const ScoreThreshold& bounds, bool logits, std::int64_t* out) {
  const T* scores = static_cast<const T*>(run.scores);
  const std::int64_t stride = run.position_stride, count = run.count;
  if (logits)
    return stride == 1 ? threshold_strided<true>(scores, 1, count, bounds.logit, out)
                       : threshold_strided<true>(scores, stride, count, bounds.logit, out);
  return stride == 1 ? threshold_strided<false>(scores, 1, count, bounds.probability, out)
                     : threshold_strided<false>(scores, stride, count, bounds.probability, out);
}

// Reads labels of any type, ignored ones as kSkipped; returns whether another is out of range.
template <class T>
bool load_labels(const void* data, std::int64_t stride, std::int64_t count, const LabelRange& range,
                 std::int64_t* out) {
  const T* values = static_cast<const T*>(data);
  const auto [classes, truncate, has_ignored, ignored] = range;
  const std::int64_t low = classes == 0 ? std::numeric_limits<std::int64_t>::min() : 0;
  const std::int64_t high = classes == 0 ? std::numeric_limits<std::int64_t>::max() : classes - 1;
  std::int64_t bad = 0;
  const auto load_one = [&](std::int64_t i, std::int64_t at) __attribute__((always_inline)) {
    const std::int64_t label = label_of(values[at], truncate);
    const bool skipped = has_ignored & (label == ignored);
    bad |= ((label < low) | (label > high)) & !skipped;
    out[i] = skipped ? kSkipped : label;
  };
  if (stride == 1)
    for (std::int64_t i = 0; i < count; ++i) load_one(i, i);
  else
    for (std::int64_t i = 0; i < count; ++i) load_one(i, i * stride);
  return bad != 0;
}

// Labels of unknown range (any integer): labels and hits become 0, misses kOther.
void match_labels(const LabelRule& rule, std::int64_t count, std::int64_t* labels,
                  std::int64_t* predictions) {
  const LabelRule here = rule;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = labels[i];
    const bool hit = (predictions[i] == label) & here.in_range(label);
    labels[i] = here.judge_target(label) == LabelState::kIgnored ? kSkipped : 0;
    predictions[i] = hit ? 0 : kOther;
  }
}

// All positions belong to one label.
template <bool kHits>
void tally_one(const std::int64_t* labels, const std::int64_t* predictions, std::int64_t count,
               const Counters& counters) {
  std::int64_t correct = 0, counted = 0, positive = 0, hits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    correct += predictions[i] == labels[i];
    counted += labels[i] != kSkipped;
    positive += labels[i] == 1;
    if (kHits) hits += (labels[i] == 1) & (predictions[i] == 1);
  }
  *counters.correct += correct;
  *counters.counted += counted;
  *counters.positive += positive;
  if (kHits) *counters.hits += hits;
}

// Successive positions belong to successive labels.
template <bool kHits>
void tally_each(const std::int64_t* labels, const std::int64_t* predictions, std::int64_t count,
                const Counters& counters) {
  const auto [correct, counted, positive, hits] = counters;
  for (std::int64_t i = 0; i < count; ++i) {
    correct[i] += predictions[i] == labels[i];
    counted[i] += labels[i] != kSkipped;
    positive[i] += labels[i] == 1;
    if (kHits) hits[i] += (labels[i] == 1) & (predictions[i] == 1);
  }
}

}  // namespace
