// Integer counts of blocks, summed per thread and then merged: the order of threads has no effect.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "accuracy/accuracy_cpu_plan.h"

namespace syncfree::accuracy::cpu {

// Up to this many classes a table of (target, prediction) pairs stays in L1.
inline constexpr std::int64_t kMostPairClasses = 32;

// Bad labels seen so far; the first is the one nearest the target's beginning.
struct BadLabels {
  std::int64_t count = 0;
  std::uint64_t first = ~std::uint64_t{0};
  std::int64_t value = 0;

  void merge(const BadLabels& other) {
    count += other.count;
    if (other.first >= first) return;
    first = other.first;
    value = other.value;
  }
};

// Counts of one group, for each slot: right, counted, predictions of the class or positives of the
// label, and positives predicted as such. With several k, `misses` takes the place of the first
// two: the positions of each slot that miss none of the k, those that miss one, and so on.
struct Counts {
  Counts(std::int64_t slots, const TopKList& top_ks)
      : storage(static_cast<std::size_t>((top_ks.count > 0 ? 5 + top_ks.count : 4) * slots)),
        correct(storage.data()),
        counted(correct + slots),
        extra(counted + slots),
        hits(extra + slots),
        misses(hits + slots) {}
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  void merge(const Counts& other) {
    for (std::size_t i = 0; i < storage.size(); ++i) storage[i] += other.storage[i];
  }

  std::vector<std::int64_t> storage;
  std::int64_t* correct;
  std::int64_t* counted;
  std::int64_t* extra;
  std::int64_t* hits;
  std::int64_t* misses;
};

// What all threads share while they count one group.
struct Shared {
  explicit Shared(const Plan& plan) : counts(plan.slots, plan.top_ks) {}

  Counts counts;
  BadLabels bad;
  std::mutex mutex;
};

// Counts of one thread's blocks. Counters of its own pay only where they are fewer than the
// positions to count; otherwise each block is tallied into the shared counts.
class Tally {
 public:
  Tally(const Plan& plan, Shared& shared, std::int64_t positions)
      : plan_(plan),
        shared_(shared),
        owns_(plan.slots <= positions),
        own_(owns_ ? plan.slots : 0, plan.top_ks),
        pairs_(owns_ && uses_pairs()
                   ? static_cast<std::size_t>(2 * (plan.classes + 1) * plan.classes)
                   : 0) {}

  void add(const Block& block) {
    if (owns_) {
      add(block, own_);
    } else {
      const std::lock_guard lock(shared_.mutex);
      add(block, shared_.counts);
    }
  }

  void finish(const BadLabels& bad) {
    unfold_pairs();
    const std::lock_guard lock(shared_.mutex);
    if (owns_) shared_.counts.merge(own_);
    shared_.bad.merge(bad);
  }

 private:
  bool uses_pairs() const {
    return plan_.needs_class && plan_.top_ks.count == 0 && plan_.classes <= kMostPairClasses;
  }

  void add(const Block& block, Counts& counts) {
    if (plan_.top_ks.count > 0) {
      add_ranks(block, counts);
    } else if (!pairs_.empty()) {
      add_pairs(block);
    } else if (plan_.by_class) {
      add_classes(block, counts);
    } else {
      add_slots(block, counts);
    }
  }

  // One increment per position instead of three; neighbors mostly have the same pair, so two copies
  // of the table keep an increment from waiting for the one before it.
  void add_pairs(const Block& block) {
    const std::int64_t classes = plan_.classes, copy = (classes + 1) * classes;
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t row = block.labels[i] < 0 ? classes : block.labels[i];
      const std::int64_t column = row == classes ? 0 : block.predictions[i];
      ++pairs_[static_cast<std::size_t>((i & 1) * copy + row * classes + column)];
    }
  }

  void unfold_pairs() {
    if (pairs_.empty()) return;
    const std::int64_t classes = plan_.classes, copy = (classes + 1) * classes;
    for (std::int64_t label = 0; label < classes; ++label)
      for (std::int64_t c = 0; c < classes; ++c) {
        const auto at = static_cast<std::size_t>(label * classes + c);
        const std::int64_t n = pairs_[at] + pairs_[at + static_cast<std::size_t>(copy)];
        own_.counted[label] += n;
        own_.extra[c] += n;
        if (label == c) own_.correct[c] += n;
      }
  }

  void add_classes(const Block& block, Counts& counts) const {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t label = block.labels[i];
      if (label == kSkipped) continue;
      ++counts.counted[label];
      counts.correct[label] += block.predictions[i] == label;
      if (plan_.needs_class) ++counts.extra[block.predictions[i]];
    }
  }

  void add_ranks(const Block& block, Counts& counts) const {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t label = block.labels[i], ahead = block.ranks[i];
      if (label == kSkipped) continue;
      const int misses = ahead == kOther ? plan_.top_ks.count : plan_.top_ks.misses(ahead);
      ++counts.misses[misses * plan_.slots + (plan_.by_class ? label : 0)];
      if (plan_.needs_class) ++counts.extra[block.predictions[i]];
    }
  }

  void add_slots(const Block& block, Counts& counts) const {
    const Kernels& kernels = plan_.kernels;
    const bool each = plan_.slot_size == 1;
    std::int64_t slot = block.first / plan_.slot_size % plan_.slots;
    std::int64_t left = each ? plan_.slots - slot : plan_.slot_size - block.first % plan_.slot_size;
    for (std::int64_t i = 0; i < block.count;) {
      const std::int64_t n = std::min(left, block.count - i);
      (each ? kernels.tally_each : kernels.tally_one)(
          block.labels + i, block.predictions + i, n,
          {counts.correct + slot, counts.counted + slot, counts.extra + slot, counts.hits + slot});
      i += n;
      slot = each || slot + 1 == plan_.slots ? 0 : slot + 1;
      left = each ? plan_.slots : plan_.slot_size;
    }
  }

  const Plan& plan_;
  Shared& shared_;
  bool owns_;
  Counts own_;
  std::vector<std::int64_t> pairs_;
};

}  // namespace syncfree::accuracy::cpu
