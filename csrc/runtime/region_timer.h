// Times regions of streams with pairs of events, and never waits for them.
//
// A region takes a slot with two events, records one at its beginning and one at its end, and the
// slot joins the queue of its stream. Now and then a look at the queues asks, without waiting,
// whether the ends of the oldest slots have passed; their times become samples and the slots are
// free again. The number of slots is fixed. If none is free, the oldest one in a queue is dropped
// and counted.
//
// Some regions are also stamped (clock_stamp.h) or probed: at their end it is checked whether the
// GPU has begun them. A captured region is part of a CUDA graph, and each replay is a sample.
// Siblings are regions with the same parent, the region around them.
//
// Independent of Python. The caller holds one lock (in Python the GIL) in all calls except `wait`,
// `record_start` and `record_end`. The latter two touch nothing but their slot, and may block while
// the GPU's queue is full.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/cuda_device.h"
#include "runtime/region_sample.h"

namespace syncfree::runtime {

inline constexpr std::size_t kMostNames = 4096;
inline constexpr std::size_t kDepths = 16;      // gaps of regions nested deeper are not known
inline constexpr std::size_t kMostAtOnce = 24;  // slots that one look at the queues frees
// Regions of a device between two looks at its queues. A look frees more slots than that, so that
// the queues shrink.
inline constexpr std::uint64_t kRegionsBetweenLooks = 16;

// More names or open regions than a timer has room for.
class TimerLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DeviceRegions;

// The end of the last region at each depth, to measure gaps between siblings.
struct LastEnds {
  struct End {
    double at = kUnknown;
    std::uint64_t parent = 0;
  };
  std::array<End, kDepths> ends;

  // The time from the last sibling's end to `start`; notes this region's end.
  double gap(std::uint32_t depth, std::uint64_t parent, double start, double end);
};

struct RegionSlot;

// The regions that are open on one thread, innermost first, and when the last ones were closed.
struct ThreadRegions {
  RegionSlot* innermost = nullptr;
  std::uint64_t id = 0;
  LastEnds ends;
};

struct RegionSlot {
  cuda::Event start = nullptr;
  cuda::Event end = nullptr;
  cuda::StampPlace stamps[2];
  std::uint32_t serials[2] = {0, 0};  // of the stamps; 0 without
  int stamps_sent = 0;
  bool probe = false;  // check at the end whether the GPU has begun
  bool is_open = false;
  RegionSlot* next = nullptr;   // the next free slot, or the next one in the queue
  RegionSlot* outer = nullptr;  // the region around it, while open
  ThreadRegions* thread = nullptr;
  DeviceRegions* device = nullptr;  // null without a GPU
  RegionHistory* history = nullptr;
  // Of a captured region: milliseconds from the clock to the end of its last known replay.
  float last_reading = std::numeric_limits<float>::quiet_NaN();
  RegionSample sample;
};

// Regions of one stream whose ends are recorded, oldest first.
struct StreamQueue {
  cuda::Stream stream = nullptr;
  RegionSlot* first = nullptr;
  RegionSlot* last = nullptr;
  RegionSlot* mark = nullptr;  // the newest at an earlier look, if still queued
  // The end of the last region that became a sample, from where the next one is measured: times
  // between events are floats, and exact only while they are short.
  cuda::Event anchor = nullptr;
  double anchor_at = 0;
  LastEnds ends;
};

struct DeviceRegions {
  cuda::Device* device = nullptr;
  int ordinal = -1;
  std::vector<RegionSlot> slots;
  RegionSlot* free = nullptr;
  std::deque<StreamQueue> queues;  // a deque, so that addresses stay
  StreamQueue* latest = nullptr;   // used last
  std::size_t pending = 0;
  std::uint64_t until_look = kRegionsBetweenLooks;  // regions to close before the next look
  std::uint64_t between_looks = kRegionsBetweenLooks;
  std::deque<RegionSlot> captured;
  // Recorded on the device's idle stream: a point in time that GPU and host share.
  cuda::Event clock = nullptr;
  double clock_at = 0;
  bool clock_is_old = false;
  // The bracket in microseconds (event_bracket.h), subtracted from each time between events. No
  // sample is made before it is settled; NaN says that it could not be measured.
  double bracket = kUnknown;
  bool bracket_is_settled = false;
  cuda::Event next_clock = nullptr;  // recorded to replace `clock`; or null
};

// The last thing in a queue: an event, and perhaps a stamp behind it.
struct RegionEnd {
  cuda::Device* device;
  cuda::Event event;
  const cuda::Stamp* stamp;
  std::uint32_t serial;
};

class RegionTimer {
 public:
  struct Options {
    std::size_t capacity;       // slots of a device
    std::size_t history;        // samples kept for each name
    std::uint64_t stamp_every;  // one region of a name in so many; 0: never
    bool has_gpu;
    const char* capacity_name = "capacity";  // the caller's word for it, for messages
  };

  // Whether this process is the forked child of one that had a timer: it must not use CUDA, and its
  // regions are skipped.
  static bool in_forked_child();

  explicit RegionTimer(const Options& options);
  ~RegionTimer();
  RegionTimer(const RegionTimer&) = delete;
  RegionTimer& operator=(const RegionTimer&) = delete;

  // The history of a name and kind; throws TimerLimit beyond `kMostNames`.
  RegionHistory& name(const std::string& name, RegionKind kind);

  // Makes the slots and kernels of a device, which takes milliseconds; else its first region does.
  void prepare(int device);

  // Returns what `prepare` makes, which it makes if need be.
  DeviceRegions& on(int ordinal);
  // A slot for a region that begins on this thread; null if it cannot be timed, which is counted.
  // `device` is null without a GPU and in a forked child. Otherwise its context must be current and
  // the call be an OwnCall, both also for `record_start`.
  RegionSlot* open(RegionHistory& history, DeviceRegions* device, cuda::Stream stream,
                   std::int64_t bytes);
  void record_start(RegionSlot& slot);
  void record_end(RegionSlot& slot);
  void close(RegionSlot& slot);
  // Instead of `close`, without a sample.
  void abandon(RegionSlot& slot);
  // Like `abandon`, for a region that cannot be timed to its end, which is counted.
  void skip(RegionSlot& slot);
  // Like `abandon`, for a region that should have become a sample; counted, with the problem.
  void lose(RegionSlot& slot, const std::string& problem);

  // Turns what has ended into samples; returns how many. Never waits.
  std::size_t poll();
  // Waits until all of `last_ends` has passed; called without the lock. The only call here that
  // waits, so it does not hide from the sync detector.
  void wait(const std::vector<RegionEnd>& ends) const;
  std::vector<RegionEnd> last_ends() const;
  std::size_t pending() const;
  // Of each device whose bracket is settled, by ordinal.
  std::vector<std::pair<int, double>> brackets() const;

  // Forgets the samples and counts; what is open or pending now will not count either.
  void clear();

  const std::deque<RegionHistory>& histories() const { return histories_; }
  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t skipped() const { return skipped_; }
  std::uint64_t lost() const { return lost_; }
  // Why the last region was lost: the driver's message, if it was the driver.
  const std::string& problem() const { return problem_; }

 private:
  ThreadRegions& this_thread();
  StreamQueue& queue_of(DeviceRegions& device, cuda::Stream stream);
  RegionSlot& take(DeviceRegions& device);
  RegionSlot* take_captured(DeviceRegions& device);
  RegionSlot& take_host_slot();
  bool drop_oldest(DeviceRegions& device);
  void leave_thread(RegionSlot& slot);
  void release(RegionSlot& slot);
  static void give_back_stamps(RegionSlot& slot);
  RegionSlot& pop(DeviceRegions& device, StreamQueue& queue);
  bool knows_bracket(DeviceRegions& device);
  bool advance(DeviceRegions& device, StreamQueue& queue);
  std::size_t advance(DeviceRegions& device, std::size_t most);
  bool look(DeviceRegions& device);
  std::size_t read_captured(DeviceRegions& device);
  void move_clock(DeviceRegions& device);
  void add(RegionHistory& history, const RegionSample& sample);

  const Options options_;
  std::deque<RegionHistory> histories_;
  std::vector<std::unique_ptr<DeviceRegions>> devices_;  // by ordinal
  std::unordered_map<std::uint64_t, ThreadRegions> threads_;
  ThreadRegions* latest_thread_ = nullptr;  // the last that opened a region
  std::deque<RegionSlot> host_slots_;
  RegionSlot* free_host_slot_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t cleared_before_ = 0;  // sequences up to this one do not count
  std::uint64_t dropped_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t lost_ = 0;
  std::string problem_;
};

}  // namespace syncfree::runtime
