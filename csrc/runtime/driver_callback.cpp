// The part of DriverWatch that runs inside of the driver's functions: CUPTI's callback.
#include <algorithm>
#include <ctime>

#include "runtime/driver_watch.h"
#include "runtime/own_call.h"

namespace syncfree::runtime {
namespace {

// CUresult
constexpr std::int32_t kSuccess = 0;
constexpr std::int32_t kNotReady = 600;

// A loop has queried at least this often without doing anything else. A program that queries once
// per step launches something in between.
constexpr std::uint32_t kQueriesOfALoop = 3;
// A "load" that takes less time found the module already loaded.
constexpr std::uint64_t kLoadNs = 10'000;
// The least time between two wakes of the reader for the sake of copies.
constexpr std::uint64_t kReaderNs = 20'000'000;

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool same_frames(const CallLog& log, std::int32_t first, std::int32_t second) {
  if (first == kNoSite || second == kNoSite) return false;
  const CallSite &a = log.site(first), &b = log.site(second);
  return a.frames == b.frames && std::equal(a.frame, a.frame + a.frames, b.frame);
}

}  // namespace

void DriverWatch::on_call(void* user, CuptiDomain domain, std::uint32_t id, const void* data) {
  auto& watch = *static_cast<DriverWatch*>(user);
  const bool is_driver = domain == CuptiDomain::kDriver;
  const Functions& functions = is_driver ? watch.driver_ : watch.runtime_;
  if (!watch.is_active() || id >= functions.calls.size()) return;
  const auto& call = *static_cast<const CuptiCall*>(data);
  const CallInfo info = functions.calls[id];
  // Also for our own calls: memory is pinned for all, whoever pinned it.
  if (info.pinning != Pinning::kNone) watch.note_pinning(info, call);
  if (own_call_depth > 0) return;
  ThreadLog* thread = watch.logs_.mine();
  if (thread == nullptr) {
    if (is_driver && call.site == kCuptiEnter) watch.lost_threads_.fetch_add(1);
    watch.want_reader_soon(now_ns());
    return;
  }
  if (thread->is_service || thread->is_busy) return;
  thread->is_busy = true;
  const std::uint32_t session = watch.session_.load(std::memory_order_relaxed);
  if (thread->session != session) {
    thread->session = session;
    thread->depth = 0;
    thread->polls = {};
    thread->last_copy = {};
    thread->log.clear_sites();
  }
  if (call.site == kCuptiEnter)
    watch.enter(*thread, is_driver, id, info);
  else
    watch.leave(*thread, call, id, info);
  thread->is_busy = false;
}

void DriverWatch::note_pinning(const CallInfo& info, const CuptiCall& call) {
  // Removed on entry, since other threads may get the memory as soon as it is unpinned.
  if (info.pinning == Pinning::kUnpins) {
    if (call.site == kCuptiEnter) pinned_.remove(read_arguments(info.layout, call.arguments).to);
  } else if (call.site != kCuptiEnter && *static_cast<std::int32_t*>(call.result) == kSuccess) {
    const Arguments made = read_arguments(info.layout, call.arguments);
    pinned_.add(made.to, made.bytes);
  }
}

void DriverWatch::enter(ThreadLog& thread, bool is_driver, std::uint32_t id, const CallInfo& info) {
  if (thread.depth == thread.open.size()) return;
  // The site of a wait is looked up on entry, while the GPU is busy anyway; that of other calls
  // only when it is needed.
  const std::int32_t site = info.kind == CallKind::kWait ? thread.log.site_here(id) : kNoSite;
  const std::uint32_t pending = is_driver ? marks_.pending() : 0;
  thread.open[thread.depth++] = {is_driver, false, id, pending, site, now_ns()};
}

void DriverWatch::leave(ThreadLog& thread, const CuptiCall& call, std::uint32_t id,
                        const CallInfo& info) {
  const bool is_driver = info.kind != CallKind::kNone;
  std::size_t depth = thread.depth;
  while (depth > 0 &&
         (thread.open[depth - 1].is_driver != is_driver || thread.open[depth - 1].id != id))
    --depth;
  if (depth == 0) return;  // it began before the watch did
  const OpenCall open = thread.open[depth - 1];
  thread.depth = depth - 1;
  switch (info.kind) {
    case CallKind::kNone:
      return;
    case CallKind::kQuery:
      note_query(thread, open, call, info);
      return;
    case CallKind::kLaunch:
    case CallKind::kAsyncCopy:
    case CallKind::kCopy:
    case CallKind::kPeerCopy:
    case CallKind::kFill:
      // A program that queues work between two queries does not just wait: the count starts anew.
      for (Poll& poll : thread.polls) poll.count = 0;
      break;
    default:
      break;
  }
  if (info.kind != CallKind::kLaunch && !open.is_told &&
      *static_cast<std::int32_t*>(call.result) == kSuccess)
    tell(thread, open, call, info);
  else if (open.is_told)
    for (std::size_t i = 0; i < thread.depth; ++i) thread.open[i].is_told = true;
}

void DriverWatch::tell(ThreadLog& thread, const OpenCall& open, const CuptiCall& call,
                       const CallInfo& info) {
  CallRecord record;
  record.exit_ns = now_ns();
  record.enter_ns = open.enter_ns;
  record.pending_before = open.pending;
  record.pending_after = marks_.pending();
  record.arguments = read_arguments(info.layout, call.arguments);
  record.context = call.context;
  record.site = open.site;
  record.driver_id = open.id;
  record.kind = info.kind;
  const auto* outermost = std::find_if(thread.open.data(), thread.open.data() + thread.depth,
                                       [](const OpenCall& each) { return !each.is_driver; });
  if (outermost != thread.open.data() + thread.depth) record.runtime_id = outermost->id;
  if (!complete(thread, record)) return;
  for (std::size_t i = 0; i < thread.depth; ++i) thread.open[i].is_told = true;
  push(thread, record);
}

// Fills in the site and the kind of host memory; false if there is nothing to record.
bool DriverWatch::complete(ThreadLog& thread, CallRecord& record) {
  Arguments& arguments = record.arguments;
  switch (record.kind) {
    case CallKind::kWait: {
      const CallRecord copy = thread.last_copy;
      thread.last_copy.kind = CallKind::kNone;
      if (copy.kind == CallKind::kNone || !same_frames(thread.log, copy.site, record.site))
        return true;
      record.arguments = copy.arguments;
      record.host = copy.host;
      record.copy_driver_id = copy.driver_id;
      record.copy_runtime_id = copy.runtime_id;
      record.copy_was_recorded = copy.copy_was_recorded;
      // The copy's time is added, as it may have waited too: a copy to pageable memory does, and
      // leaves nothing to wait for.
      record.enter_ns -= copy.exit_ns - copy.enter_ns;
      if (copy.outlasted_gpu()) {
        record.pending_before = copy.pending_before;
        record.pending_after = copy.pending_after;
      }
      return true;
    }
    case CallKind::kCopy:
    case CallKind::kAsyncCopy:
    case CallKind::kPeerCopy:
    case CallKind::kFill: {
      if (!arguments.has_host_end) return false;
      if (arguments.direction != Direction::kToDevice && pinned_.contains(arguments.to)) {
        record.host = HostMemory::kPinned;
        if (record.kind != CallKind::kFill) arguments.direction = Direction::kToHost;
      } else if (arguments.direction != Direction::kToHost && pinned_.contains(arguments.from)) {
        record.host = HostMemory::kPinned;
        arguments.direction = Direction::kToDevice;
      }
      record.site = thread.log.site_here(record.driver_id);
      if (record.kind != CallKind::kAsyncCopy) return true;
      thread.last_copy = record;
      thread.last_copy.copy_was_recorded = record.host != HostMemory::kPinned;
      if (record.host == HostMemory::kPinned) return false;
      want_reader_soon(record.exit_ns);  // the driver knows the memory only while it exists
      return true;
    }
    case CallKind::kLoad:
      if (record.exit_ns - record.enter_ns < kLoadNs) return false;
      break;
    default:
      break;
  }
  record.site = thread.log.site_here(record.driver_id);
  return true;
}

void DriverWatch::note_query(ThreadLog& thread, const OpenCall& open, const CuptiCall& call,
                             const CallInfo& info) {
  const std::uint64_t handle = read_arguments(info.layout, call.arguments).to;
  const std::int32_t result = *static_cast<std::int32_t*>(call.result);
  auto* poll = std::find_if(thread.polls.begin(), thread.polls.end(), [&](const Poll& each) {
    return each.handle == handle && each.begin_ns != 0;
  });
  if (result == kNotReady) {
    if (poll == thread.polls.end()) {
      thread.polls[thread.next_poll++ % thread.polls.size()] = {handle, kNoSite, 0, open.enter_ns};
    } else if (!hears_launches_.load(std::memory_order_relaxed)) {
      // Launches in between are not watched yet, because that makes launches slower.
      if (!wants_launches_.exchange(true)) wake();
    } else {
      const std::int32_t site = thread.log.site_here(open.id);
      if (poll->count == 0 || !same_frames(thread.log, poll->site, site))
        *poll = {handle, site, 0, open.enter_ns};
      ++poll->count;
    }
    return;
  }
  if (poll == thread.polls.end()) return;
  if (result == kSuccess && poll->count >= kQueriesOfALoop) {
    CallRecord record;
    record.enter_ns = poll->begin_ns;
    record.exit_ns = now_ns();
    record.context = call.context;
    record.site = poll->site;
    record.driver_id = open.id;
    record.queries = poll->count;
    record.kind = CallKind::kQuery;
    push(thread, record);
  }
  *poll = {};
}

void DriverWatch::push(ThreadLog& thread, const CallRecord& record) {
  if (!thread.log.push(record) || thread.log.size() == CallLog::kRecords / 2) wake();
}

void DriverWatch::want_reader_soon(std::uint64_t now) {
  std::uint64_t before = woken_ns_.load(std::memory_order_relaxed);
  if (now - before > kReaderNs && woken_ns_.compare_exchange_strong(before, now)) wake();
}

}  // namespace syncfree::runtime
