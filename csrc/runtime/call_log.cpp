#include "runtime/call_log.h"

#include <execinfo.h>

#include <algorithm>
#include <cstring>

namespace syncfree::runtime {
namespace {

// The finaliser of MurmurHash3.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

std::uint64_t hash_of(const char* bytes, std::size_t size, std::uint64_t hash) {
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  std::uint64_t word = size;
  std::memcpy(&word, bytes, size);
  return mix(hash ^ word);
}

std::uint64_t hash_of(const CapturedFrame& frame) {
  const auto line = static_cast<std::uint64_t>(static_cast<std::uint32_t>(frame.line));
  return hash_of(frame.function.bytes, frame.function.size,
                 hash_of(frame.file.bytes, frame.file.size, line));
}

template <std::size_t kCapacity>
bool same(const ShortText<kCapacity>& a, const ShortText<kCapacity>& b) {
  return a.size == b.size && std::memcmp(a.bytes, b.bytes, a.size) == 0;
}

bool same(const CapturedFrame& a, const CapturedFrame& b) {
  return a.line == b.line && same(a.file, b.file) && same(a.function, b.function);
}

}  // namespace

void CallLog::clear_sites() {
  frame_count_ = site_count_ = 0;
  std::fill_n(frame_index_.get(), 2 * kFrames, 0);
  std::fill_n(site_index_.get(), 2 * kSites, 0);
}

std::int32_t CallLog::intern(const CapturedFrame& frame, std::uint64_t hash) {
  constexpr std::size_t kMask = 2 * kFrames - 1;
  std::size_t place = hash & kMask;
  for (; frame_index_[place] != 0; place = (place + 1) & kMask) {
    const std::int32_t index = frame_index_[place] - 1;
    if (frame_hashes_[index] == hash && same(frames_[index], frame)) return index;
  }
  if (frame_count_ == kFrames) return -1;
  const auto index = static_cast<std::int32_t>(frame_count_++);
  frames_[index] = frame;
  frame_hashes_[index] = hash;
  frame_index_[place] = index + 1;
  return index;
}

std::int32_t CallLog::site_here(std::uint32_t driver_id) {
  constexpr std::size_t kMask = 2 * kSites - 1;
  CallSite site;
  site.driver_id = driver_id;
  site.frames = 0;
  site.hash = mix(driver_id);
  const std::size_t count = capture_python_stack(scratch_.get(), CallSite::kFrames);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t hash = hash_of(scratch_[i]);
    const std::int32_t frame = intern(scratch_[i], hash);
    if (frame < 0) break;  // no room: the outermost frames are missed least
    site.frame[site.frames++] = frame;
    site.hash = mix(site.hash ^ hash);
  }
  if (count > 0 && site.frames == 0) return kNoSite;
  std::size_t place = site.hash & kMask;
  for (; site_index_[place] != 0; place = (place + 1) & kMask) {
    const CallSite& known = sites_[site_index_[place] - 1];
    if (known.hash == site.hash && known.driver_id == driver_id && known.frames == site.frames &&
        std::equal(site.frame, site.frame + site.frames, known.frame))
      return site_index_[place] - 1;
  }
  if (site_count_ == kSites) return kNoSite;
  // Unwinding costs about a microsecond a frame, so it is done once for a place.
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
