// Watches the driver's calls through CUPTI and logs those that make the host wait, or may.
//
// The callback runs inside of the driver's functions, in the thread that called them, with any lock
// held. So it takes no lock that others hold for long (never the GIL), allocates nothing and calls
// neither CUDA nor CUPTI. It writes records (call_log.h); verdicts are made later, outside of it.
//
// A session is the time from `start` to `stop`. The reader is the thread that sleeps here and reads
// the logs. A call is told when it has a record; the calls around it then need none.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cupti.h"
#include "runtime/driver_call.h"
#include "runtime/gpu_marks.h"
#include "runtime/pinned_ranges.h"
#include "runtime/thread_logs.h"

namespace syncfree::runtime {

class DriverWatch {
 public:
  // Handles of dlopen; `driver` may be null. A watch is never freed, as callbacks may come late.
  DriverWatch(void* cupti, void* driver);

  // Returns a CUPTI result; `holder` gets the name of another tool that is already subscribed.
  int start(std::string& holder);
  void stop();
  bool is_active() const { return active_.load(std::memory_order_relaxed); }

  // For the reader: sleeps until a log is half full, a copy should be looked at soon, or `wake` is
  // called.
  void sleep();
  void wake() { sem_post(&waker_); }

  // Asks the driver for the kind of memory at an address that a call used; remembers pinned ranges.
  // `is_host`: the call accepts only host memory there.
  HostMemory memory_kind(std::uint64_t address, void* context, bool is_host);

  std::uint64_t lost() const;
  const std::string& driver_name(std::uint32_t id) const { return driver_.names[id]; }
  const std::string& runtime_name(std::uint32_t id) const { return runtime_.names[id]; }
  const std::vector<std::string>& names(CuptiDomain domain) const;
  std::string word(int result) const { return cupti_.word(result); }
  ThreadLogs& logs() { return logs_; }
  GpuMarks& marks() { return marks_; }
  void use_marks(void* words) { marks_.use(driver_library_, words); }

 private:
  struct Functions {
    std::vector<std::string> names;
    std::vector<CallInfo> calls;
    std::vector<std::uint32_t> watched, launches;
  };

  static void on_call(void* watch, CuptiDomain domain, std::uint32_t id, const void* data);

  void note_pinning(const CallInfo& info, const CuptiCall& call);
  void enter(ThreadLog& thread, bool is_driver, std::uint32_t id, const CallInfo& info);
  void leave(ThreadLog& thread, const CuptiCall& call, std::uint32_t id, const CallInfo& info);
  void tell(ThreadLog& thread, const OpenCall& open, const CuptiCall& call, const CallInfo& info);
  void note_query(ThreadLog& thread, const OpenCall& open, const CuptiCall& call,
                  const CallInfo& info);
  bool complete(ThreadLog& thread, CallRecord& record);
  void push(ThreadLog& thread, const CallRecord& record);
  void want_reader_soon(std::uint64_t now_ns);

  int enable(CuptiDomain domain, const std::vector<std::uint32_t>& ids);

  Cupti cupti_;
  void* driver_library_;
  Functions driver_, runtime_;
  ThreadLogs logs_;
  PinnedRanges pinned_;
  GpuMarks marks_;
  sem_t waker_;
  std::mutex cupti_mutex_;  // CUPTI allows only one enabling call at a time
  std::atomic<bool> active_ = false;
  std::atomic<std::uint32_t> session_ = 0;
  std::atomic<std::uint64_t> lost_threads_ = 0;  // calls of threads that got no log
  std::atomic<std::uint64_t> woken_ns_ = 0;
  std::atomic<bool> wants_launches_ = false;
  std::atomic<bool> hears_launches_ = false;
};

}  // namespace syncfree::runtime
