// A table of slots for each device, and the ops that read and clear them.
#include "ops/cuda_error_record.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "ops/accuracy_error.h"

namespace syncfree::ops {
namespace {

constexpr int kMaxDevices = 64;

using Table = std::array<ErrorSlot, ErrorOrigin::kSlots>;

std::atomic<Table*> tables[kMaxDevices];

// Pinned memory must not be allocated while a stream captures, unless this thread's mode is
// relaxed.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

Table* allocate() {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  // Portable: one device's table may be asked for while another is current.
  check_cuda(cudaHostAlloc(&memory, sizeof(Table), cudaHostAllocMapped | cudaHostAllocPortable));
  return new (memory) Table{};
}

void check_index(const char* what, std::int64_t index, std::int64_t count) {
  if (!(index >= 0 && index < count))
    fail_value("Expected ", what, " in the range [0, ", count - 1, "], but got ", index, ".");
}

Table* find_table(std::int64_t device) {
  check_index("a device index", device, kMaxDevices);
  return tables[device].load(std::memory_order_acquire);
}

Table& table_of(int device) {
  Table* table = find_table(device);
  if (table != nullptr) [[likely]]
    return *table;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  table = find_table(device);
  if (table == nullptr) {
    table = allocate();
    tables[device].store(table, std::memory_order_release);
  }
  return *table;
}

using Number = std::atomic_ref<unsigned long long>;

bool has_word(ErrorSlot& slot) {
  return Number(slot.published).load() != Number(slot.taken).load() ||
         Number(slot.more).load() != Number(slot.more_taken).load();
}

// Empties the slot and returns the message for what was in it; empty if nothing was.
std::string take(ErrorSlot& slot, std::int64_t device, std::int64_t number) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const unsigned long long published = Number(slot.published).load();
  const bool recorded = published != slot.taken;
  const ErrorRecord record = recorded ? slot.record : ErrorRecord{};
  const unsigned long long all = Number(slot.more).load(), more = all - slot.more_taken;
  if (!recorded && more == 0) return {};  // another thread was quicker
  Number(slot.more_taken).store(all);
  Number(slot.taken).store(published);  // frees the record

  std::ostringstream text;
  const std::string where = " on cuda:" + std::to_string(device);
  if (recorded)
    text << error_text(record, where, more);
  else
    text << "Detected " << more << " values out of range" << where
         << " beside those that the last error told of.";
  text << " They were left out and the result is NaN. Correct the labels, or pass `ignore_index`, "
          "or `validate_args=False` to go without this check.";
  ErrorOrigin origin;
  origin.slot = number;
  origin.call = record.call;
  text << origin_mark(origin);
  return text.str();
}

// Whether any call on the device ever asked for a slot.
bool has_error_record(std::int64_t device) {
  return find_table(device) != nullptr;
}

// [begin, end) of one index, or of all if it is negative.
struct Range {
  std::int64_t begin, end;
};

Range range_of(const char* what, std::int64_t index, std::int64_t count) {
  if (index < 0) return {0, count};
  check_index(what, index, count);
  return {index, index + 1};
}

// Empties a slot and returns the message for what was in it; an empty string if nothing was. A
// negative number stands for all devices, or for all slots; each then has a line of its own.
std::string take_error_record(std::int64_t device, std::int64_t slot) {
  const Range devices = range_of("a device index", device, kMaxDevices);
  const Range slots = range_of("a slot", slot, ErrorOrigin::kSlots);
  std::string text;
  for (std::int64_t d = devices.begin; d < devices.end; ++d) {
    Table* table = find_table(d);
    if (table == nullptr) continue;
    for (std::int64_t s = slots.begin; s < slots.end; ++s) {
      ErrorSlot& here = (*table)[static_cast<std::size_t>(s)];
      if (!has_word(here)) continue;
      const std::string line = take(here, d, s);
      if (!line.empty()) text += (text.empty() ? "" : "\n") + line;
    }
  }
  return text;
}

}  // namespace

ErrorSlot* checked_error_slot(const CudaContext& context, std::int64_t number) {
  const int device = context.device();
  ErrorSlot& slot = table_of(device)[static_cast<std::size_t>(number)];
  if (has_word(slot)) [[unlikely]] {
    const std::string text = take(slot, device, number);
    if (!text.empty()) throw std::runtime_error(text);
  }
  return &slot;
}

STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def("has_error_record(int device) -> bool");
  library.def("take_error_record(int device, int slot) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(syncfree, CompositeExplicitAutograd, library) {
  library.impl("has_error_record", TORCH_BOX(&has_error_record));
  library.impl("take_error_record", TORCH_BOX(&take_error_record));
}

}  // namespace syncfree::ops
