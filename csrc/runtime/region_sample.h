// A sample is what is known of one execution of a region; a history has the last samples of a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace syncfree::runtime {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class RegionKind : std::uint8_t { kCompute, kHostToDevice, kDeviceToHost };
inline constexpr const char* kKindNames[] = {"compute", "h2d", "d2h"};

struct RegionSample {
  static constexpr std::uint32_t kFirst = 1;      // the first region of its name
  static constexpr std::uint32_t kCaptured = 2;   // a replay of a CUDA graph; host times are NaN
  static constexpr std::uint32_t kHostClock = 4;  // no GPU: the "GPU" times are the host's
  static constexpr std::uint32_t kProbed = 8;     // it was checked whether the GPU had begun
  static constexpr std::uint32_t kQueued = 16;    // ... and at the end of the region it had not

  std::uint64_t sequence = 0;  // counts all regions of a timer, from 1
  std::uint64_t parent = 0;    // sequence of the region around it on its thread, or 0
  std::uint64_t thread = 0;
  std::uint64_t stream = 0;
  std::int64_t bytes = -1;
  std::int32_t device = -1;
  std::uint32_t depth = 0;
  std::uint32_t flags = 0;
  // Microseconds, on one axis of the host's monotonic clock, to which GPU time is aligned once.
  double host_start = kUnknown;
  double host_enqueue = kUnknown;
  double host_gap = kUnknown;  // since the last sibling on this thread ended
  double gpu_start = kUnknown;
  double gpu = kUnknown;
  double gpu_gap = kUnknown;  // since the last sibling on this stream ended
  double mhz = kUnknown;
};

// A region's name, with exact totals of all its samples, and the last samples themselves.
class RegionHistory {
 public:
  RegionHistory(std::string name, RegionKind kind, std::size_t keep)
      : name_(std::move(name)), kind_(kind), keep_(keep) {
    kept_.reserve(keep);  // all there will ever be: pages that are not written cost nothing
  }

  void add(const RegionSample& sample) {
    if (kept_.size() < keep_)
      kept_.push_back(sample);
    else
      kept_[count_ % keep_] = sample;
    ++count_;
    total_ += sample.gpu;
    least_ = sample.gpu < least_ ? sample.gpu : least_;
  }

  void clear() {
    kept_.clear();
    count_ = 0;
    total_ = 0;
    least_ = std::numeric_limits<double>::infinity();
  }

  const std::string& name() const { return name_; }
  RegionKind kind() const { return kind_; }
  std::uint64_t count() const { return count_; }
  double total() const { return total_; }
  double least() const { return least_; }
  // In no particular order.
  const std::vector<RegionSample>& kept() const { return kept_; }

  // How many regions of this name have begun before; counts one more.
  std::uint64_t next_opening() { return opened_++; }

 private:
  std::string name_;
  RegionKind kind_;
  std::size_t keep_;
  std::vector<RegionSample> kept_;
  std::uint64_t count_ = 0;
  std::uint64_t opened_ = 0;
  double total_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace syncfree::runtime
