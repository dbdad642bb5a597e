// A log for each thread that calls the driver, from a preallocated pool.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/call_log.h"

namespace syncfree::runtime {

// A call that has begun and not ended.
struct OpenCall {
  bool is_driver;
  bool is_told;  // a call inside of it has a record, which stands for both
  std::uint32_t id;
  std::uint32_t pending;
  std::int32_t site;
  std::uint64_t enter_ns;
};

// Queries of one event or stream that were answered "not ready".
struct Poll {
  std::uint64_t handle = 0;
  std::int32_t site = kNoSite;
  std::uint32_t count = 0;
  std::uint64_t begin_ns = 0;
};

struct ThreadLog {
  enum State : int { kFree, kUsed, kEnded };

  CallLog log;
  std::atomic<int> state = kFree;
  std::atomic<std::uint32_t> owners = 0;  // how many threads had it so far

  // Written by the thread that owns the log.
  std::uint32_t session = 0;
  std::int32_t native_id = 0;
  char name[16] = "";
  bool is_service = false;
  bool is_busy = false;
  std::size_t depth = 0;
  std::array<OpenCall, 16> open;
  std::array<Poll, 4> polls;
  std::size_t next_poll = 0;
  CallRecord last_copy;  // kind kNone: there is none
};

class ThreadLogs {
 public:
  static constexpr std::size_t kThreads = 64;

  ThreadLogs();

  // The log of the calling thread; null if the pool or the memory for its key is empty. Takes no
  // lock and allocates nothing.
  ThreadLog* mine();

  // For the reader, which gives back the log of a thread that has ended once it has read it: only
  // then may another thread get it.
  std::array<ThreadLog, kThreads>& all() { return logs_; }
  void give_back(ThreadLog& log) { log.state.store(ThreadLog::kFree, std::memory_order_release); }

 private:
  pthread_key_t key_;
  std::array<ThreadLog, kThreads> logs_;
};

}  // namespace syncfree::runtime
