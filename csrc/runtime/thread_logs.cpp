#include "runtime/thread_logs.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace syncfree::runtime {
namespace {

// Threads of torch whose work is to wait: NCCL's watchdog and heartbeat, the pinning of batches.
constexpr const char* kServices[] = {"pt_nccl_", "pt_data_pin"};

bool is_service(const char* name) {
  for (const char* each : kServices)
    if (std::strncmp(name, each, std::strlen(each)) == 0) return true;
  return false;
}

}  // namespace

ThreadLogs::ThreadLogs() {
  // A key and not a thread_local: in a loaded library that allocates at each thread's first use.
  const auto end = [](void* log) {
    static_cast<ThreadLog*>(log)->state.store(ThreadLog::kEnded, std::memory_order_release);
  };
  if (pthread_key_create(&key_, end) != 0)
    throw std::runtime_error("no thread-specific key is left for the sync detector");
}

ThreadLog* ThreadLogs::mine() {
  if (void* log = pthread_getspecific(key_)) return static_cast<ThreadLog*>(log);
  for (ThreadLog& each : logs_) {
    int free = ThreadLog::kFree;
    if (!each.state.compare_exchange_strong(free, ThreadLog::kUsed, std::memory_order_acq_rel))
      continue;
    if (pthread_setspecific(key_, &each) != 0) {  // no memory: nobody would give the log back
      give_back(each);
      return nullptr;
    }
    each.owners.fetch_add(1, std::memory_order_relaxed);
    each.session = 0;
    each.native_id = static_cast<std::int32_t>(syscall(SYS_gettid));
    prctl(PR_GET_NAME, each.name);
    each.is_service = is_service(each.name);
    return &each;
  }
  return nullptr;
}

}  // namespace syncfree::runtime
