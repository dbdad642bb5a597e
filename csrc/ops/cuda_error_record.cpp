// One record a device, and the op that reads and clears it.
#include "ops/cuda_error_record.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "ops/cuda_context.h"

namespace syncfree::ops {
namespace {

constexpr int kMaxDevices = 64;

std::atomic<ErrorRecord*> records[kMaxDevices];

// Allocation of pinned memory is forbidden while a stream captures, unless this thread says that it
// knows.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

ErrorRecord* allocate() {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  // Portable: one device's record may be asked for while another is current.
  check_cuda(
      cudaHostAlloc(&memory, sizeof(ErrorRecord), cudaHostAllocMapped | cudaHostAllocPortable));
  return new (memory) ErrorRecord{};
}

void check_index(std::int64_t device) {
  if (!(device >= 0 && device < kMaxDevices))
    fail_value("Expected a device index in the range [0, ", kMaxDevices - 1, "], but got ", device,
               ".");
}

// Whether a call on the device ever asked for its record.
bool has_error_record(std::int64_t device) {
  check_index(device);
  return records[device].load(std::memory_order_acquire) != nullptr;
}

// (kind, first_index, first_value, count), all zero if nothing was wrong; clears the record.
Tensor take_error_record(std::int64_t device) {
  check_index(device);
  const std::int64_t size = 4, stride = 1;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_int64(),
                                                  aoti_torch_device_type_cpu(), 0, &handle));
  Tensor result(handle);
  auto* out = static_cast<std::int64_t*>(result.mutable_data_ptr());
  std::fill(out, out + size, 0);
  ErrorRecord* record = records[device].load(std::memory_order_acquire);
  if (record == nullptr) return result;
  const std::int64_t count =
      std::atomic_ref<std::int64_t>(record->count).exchange(0, std::memory_order_acquire);
  if (count == 0) return result;
  out[0] = record->kind;
  out[1] = record->first_index;
  out[2] = record->first_value;
  out[3] = count;
  return result;
}

}  // namespace

ErrorRecord* device_error_record(int device) {
  check_index(device);
  ErrorRecord* record = records[device].load(std::memory_order_acquire);
  if (record != nullptr) [[likely]]
    return record;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  record = records[device].load(std::memory_order_acquire);
  if (record == nullptr) {
    record = allocate();
    records[device].store(record, std::memory_order_release);
  }
  return record;
}

STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def("has_error_record(int device) -> bool");
  library.def("take_error_record(int device) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(syncfree, CompositeExplicitAutograd, library) {
  library.impl("has_error_record", TORCH_BOX(&has_error_record));
  library.impl("take_error_record", TORCH_BOX(&take_error_record));
}

}  // namespace syncfree::ops
