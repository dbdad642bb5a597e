#include "runtime/call_log.h"

#include <execinfo.h>

#include <algorithm>

namespace syncfree::runtime {
namespace {

bool same(const CallSite& a, const CallSite& b) {
  return a.hash == b.hash && a.driver_id == b.driver_id && a.is_backward == b.is_backward &&
         a.forward == b.forward && a.frames == b.frames && a.operators == b.operators &&
         std::equal(a.frame, a.frame + a.frames, b.frame) &&
         std::equal(a.op, a.op + a.operators, b.op);
}

}  // namespace

void CallLog::clear_sites() {
  frames_.clear();
  operators_.clear();
  site_count_ = 0;
  std::fill_n(site_index_.get(), 2 * kSites, 0);
}

std::int32_t CallLog::site_here(std::uint32_t driver_id) {
  constexpr std::size_t kMask = 2 * kSites - 1;
  CallSite site;
  site.driver_id = driver_id;
  site.frames = site.operators = 0;
  site.hash = mix(driver_id);
  const std::size_t count = capture_python_stack(scratch_.get(), CallSite::kFrames);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t frame = frames_.intern(scratch_[i]);
    if (frame == kNoRoom) break;  // the outermost frames matter least
    site.frame[site.frames++] = frame;
    site.hash = mix(site.hash ^ frame);
  }
  if (count > 0 && site.frames == 0) return kNoSite;
  const RunningOperators running = running_operators();
  for (std::size_t i = 0; i < running.count; ++i) {
    const std::int32_t op = operators_.intern(*running.name[i]);
    if (op == kNoRoom) break;
    site.op[site.operators++] = op;
    site.hash = mix(site.hash ^ op);
  }
  site.is_backward = running.is_backward;
  site.forward = running.forward != nullptr ? frames_.intern(*running.forward) : kNoRoom;
  site.hash = mix(site.hash ^ site.forward);
  std::size_t place = site.hash & kMask;
  for (; site_index_[place] != 0; place = (place + 1) & kMask)
    if (same(sites_[site_index_[place] - 1], site)) return site_index_[place] - 1;
  if (site_count_ == kSites) return kNoSite;
  // Unwinding costs about a microsecond a frame, so it is done once per site.
  site.addresses = static_cast<std::uint16_t>(
      std::max(0, backtrace(site.address, static_cast<int>(CallSite::kAddresses))));
  const auto index = static_cast<std::int32_t>(site_count_++);
  sites_[index] = site;
  site_index_[place] = index + 1;
  return index;
}

bool CallLog::push(const CallRecord& record) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (head - tail_.load(std::memory_order_acquire) == kRecords) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  records_[head % kRecords] = record;
  head_.store(head + 1, std::memory_order_release);
  return true;
}

std::size_t CallLog::pop(CallRecord* records, std::size_t most) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  const std::size_t count =
      std::min<std::size_t>(most, head_.load(std::memory_order_acquire) - tail);
  for (std::size_t i = 0; i < count; ++i) records[i] = records_[(tail + i) % kRecords];
  tail_.store(tail + count, std::memory_order_release);
  return count;
}

}  // namespace syncfree::runtime
