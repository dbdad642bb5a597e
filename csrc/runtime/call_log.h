// The log of one thread's driver calls: a record of each, and the sites that they were made from.
//
// A site is a place in the program (frames and operators), which is stored once and referred to by
// its index. The thread writes and one reader at a time reads, neither waiting for the other: the
// records are a ring buffer. All memory is allocated beforehand; a full log counts what it loses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/captured_stack.h"
#include "runtime/driver_call.h"
#include "runtime/intern_table.h"
#include "runtime/operators.h"
#include "runtime/zeroed_array.h"

namespace syncfree::runtime {

enum class HostMemory : std::uint8_t { kUnknown, kPinned, kPageable, kDevice, kManaged };

inline constexpr std::int32_t kNoSite = -1;

struct CallRecord {
  std::uint64_t enter_ns = 0, exit_ns = 0;  // CLOCK_MONOTONIC
  Arguments arguments;
  void* context = nullptr;
  std::int32_t site = kNoSite;
  std::uint32_t driver_id = 0;
  std::uint32_t runtime_id = 0;  // the outermost CUDA runtime function around it; 0 if none
  std::int32_t result = 0;
  std::uint32_t pending_before = 0, pending_after = 0;  // GpuMarks::pending
  std::uint32_t queries = 0;                            // in a loop of queries, until one was ready
  std::uint32_t copy_runtime_id = 0;
  std::uint32_t copy_driver_id = 0;  // of the copy at the same site that this call waits for
  bool copy_was_recorded = false;    // that copy has a record of its own: the previous one
  CallKind kind = CallKind::kNone;
  HostMemory host = HostMemory::kUnknown;

  // Whether the call found the GPU busy and returned when that work was done.
  bool outlasted_gpu() const {
    return pending_before != 0 && (pending_before & pending_after) == 0;
  }
};

// A place in the program: Python frames, operators and C++ return addresses, innermost first.
struct CallSite {
  static constexpr std::size_t kFrames = 48;
  static constexpr std::size_t kOperators = RunningOperators::kMost;
  static constexpr std::size_t kAddresses = 24;
  std::uint64_t hash;
  std::uint32_t driver_id;
  std::uint16_t frames, operators, addresses;
  bool is_backward;             // inside of an autograd node that has a forward line (operators.h)
  std::int32_t forward;         // the frame of that line; kNoRoom if it is not known
  std::int32_t frame[kFrames];  // indices of CallLog::frame
  std::int32_t op[kOperators];  // indices of CallLog::operator_name
  void* address[kAddresses];    // return addresses in C++
};

class CallLog {
 public:
  static constexpr std::size_t kRecords = 8192;

  // Writer: forgets the sites of an earlier session.
  void clear_sites();

  // Writer: the site at which this thread is now; kNoSite if there is no room for one more.
  std::int32_t site_here(std::uint32_t driver_id);

  // Writer: returns false if the log is full; the loss is counted.
  bool push(const CallRecord& record);

  // Reader: takes up to `most` records, oldest first.
  std::size_t pop(CallRecord* records, std::size_t most);
  void discard() { tail_.store(head_.load(std::memory_order_acquire), std::memory_order_release); }

  std::size_t size() const {
    return static_cast<std::size_t>(head_.load(std::memory_order_acquire) -
                                    tail_.load(std::memory_order_acquire));
  }
  const CallSite& site(std::int32_t index) const { return sites_[index]; }
  const CapturedFrame& frame(std::int32_t index) const { return frames_[index]; }
  const OperatorName& operator_name(std::int32_t index) const { return operators_[index]; }
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kFrames = 4096;
  static constexpr std::size_t kOperators = 512;
  static constexpr std::size_t kSites = 2048;

  std::atomic<std::uint64_t> head_ = 0, tail_ = 0, lost_ = 0;
  std::size_t site_count_ = 0;
  InternTable<CapturedFrame, kFrames> frames_;
  InternTable<OperatorName, kOperators> operators_;
  ZeroedArray<CapturedFrame> scratch_{CallSite::kFrames};
  ZeroedArray<std::int32_t> site_index_{2 * kSites};  // by hash; 0: empty, else 1 + the index
  ZeroedArray<CallSite> sites_{kSites};
  ZeroedArray<CallRecord> records_{kRecords};
};

}  // namespace syncfree::runtime
