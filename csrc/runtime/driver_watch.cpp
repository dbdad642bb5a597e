#include "runtime/driver_watch.h"

#include <execinfo.h>
#include <pthread.h>

#include "runtime/host_memory.h"

namespace syncfree::runtime {
namespace {

// CUPTI has one subscriber in a process.
std::atomic<DriverWatch*> subscribed = nullptr;

void unwind_once() {
  void* address[1];
  backtrace(address, 1);  // loads the unwinder, which allocates
}

}  // namespace

DriverWatch::DriverWatch(void* cupti, void* driver) : cupti_(cupti), driver_library_(driver) {
  driver_.names = cupti_.names(CuptiDomain::kDriver);
  runtime_.names = cupti_.names(CuptiDomain::kRuntime);
  for (std::uint32_t id = 0; id < driver_.names.size(); ++id) {
    const CallInfo info = driver_call(driver_.names[id]);
    driver_.calls.push_back(info);
    if (info.kind == CallKind::kLaunch)
      driver_.launches.push_back(id);
    else if (info.kind != CallKind::kNone)
      driver_.watched.push_back(id);
  }
  for (std::uint32_t id = 0; id < runtime_.names.size(); ++id)
    if (is_runtime_label(runtime_.names[id])) runtime_.watched.push_back(id);
  runtime_.calls.resize(runtime_.names.size());
  sem_init(&waker_, 0, 0);
}

const std::vector<std::string>& DriverWatch::names(CuptiDomain domain) const {
  return domain == CuptiDomain::kDriver ? driver_.names : runtime_.names;
}

int DriverWatch::enable(CuptiDomain domain, const std::vector<std::uint32_t>& ids) {
  int failed = kCuptiSuccess;
  for (const std::uint32_t id : ids) {
    const int result = cupti_.enable(domain, id, true);
    // A release may refuse callbacks that are merely useful, but not those of waits.
    if (result != kCuptiSuccess && domain == CuptiDomain::kDriver &&
        driver_.calls[id].kind == CallKind::kWait)
      failed = result;
  }
  return failed;
}

int DriverWatch::start(std::string& holder) {
  static const bool once = [] {
    unwind_once();
    // A forked child cannot use CUDA, and has only one of its parent's threads.
    pthread_atfork(nullptr, nullptr, [] {
      if (DriverWatch* watch = subscribed.load()) watch->active_.store(false);
    });
    return true;
  }();
  (void)once;
  const std::lock_guard lock(cupti_mutex_);
  int result = cupti_.subscribe(&DriverWatch::on_call, this, holder);
  if (result != kCuptiSuccess) return result;
  subscribed.store(this);
  for (ThreadLog& each : logs_.all()) each.log.discard();
  pinned_.clear();  // what was freed while nobody listened is not known
  session_.fetch_add(1);
  active_.store(true);
  result = enable(CuptiDomain::kDriver, driver_.watched);
  enable(CuptiDomain::kRuntime, runtime_.watched);
  if (result != kCuptiSuccess) {
    active_.store(false);
    cupti_.unsubscribe();
    subscribed.store(nullptr);
  }
  return result;
}

void DriverWatch::stop() {
  const std::lock_guard lock(cupti_mutex_);
  active_.store(false);
  wants_launches_.store(false);
  hears_launches_.store(false);
  cupti_.unsubscribe();
  DriverWatch* self = this;
  subscribed.compare_exchange_strong(self, nullptr);
}

void DriverWatch::sleep() {
  while (sem_wait(&waker_) != 0) {
  }
  while (sem_trywait(&waker_) == 0) {
  }
  if (!wants_launches_.load() || hears_launches_.load()) return;
  const std::lock_guard lock(cupti_mutex_);
  if (!is_active()) return;
  enable(CuptiDomain::kDriver, driver_.launches);
  hears_launches_.store(true);
}

HostMemory DriverWatch::memory_kind(std::uint64_t address, void* context, bool is_host) {
  MemoryRange range;
  const HostMemory kind = syncfree::runtime::memory_kind(driver_library_, context, address, range);
  if (kind == HostMemory::kPinned && address - range.begin < range.bytes)
    pinned_.add(range.begin, range.bytes);
  if (kind != HostMemory::kPageable && kind != HostMemory::kUnknown) return kind;
  // The driver does not know the address now, but may have at the time of the call.
  if (pinned_.may_have_contained(address)) return HostMemory::kUnknown;
  return is_host && driver_library_ != nullptr ? HostMemory::kPageable : kind;
}

std::uint64_t DriverWatch::lost() const {
  std::uint64_t sum = lost_threads_.load();
  for (const ThreadLog& each : const_cast<ThreadLogs&>(logs_).all()) sum += each.log.lost();
  return sum;
}

}  // namespace syncfree::runtime
