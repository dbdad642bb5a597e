// The stable ABI makes tensors only through torch's dispatcher: 1.05 us on an H100's host, of which
// torch's allocator takes 0.4. Where it can, python/syncfree/_ops/quick_results.py provides a
// shorter path, csrc/empty, which also throws torch's own error when there is no memory.
#include "ops/cuda_empty.h"

#include <algorithm>
#include <atomic>

namespace syncfree::ops {
namespace {

// Returns an AtenTensorHandle.
using Empty = void*(const std::int64_t* sizes, std::size_t rank, std::int32_t dtype,
                    std::int32_t device);

std::atomic<Empty*> provided = nullptr;

}  // namespace

Tensor empty_on_cuda(std::span<const std::int64_t> sizes, ScalarType dtype, std::int32_t device) {
  const auto type = static_cast<std::int32_t>(dtype);
  if (Empty* const empty = provided.load(std::memory_order_relaxed)) [[likely]]
    return Tensor(static_cast<AtenTensorHandle>(empty(sizes.data(), sizes.size(), type, device)));
  return empty_by_stable_abi(sizes, dtype, {aoti_torch_device_type_cuda(), device});
}

extern "C" __attribute__((visibility("default"))) void syncfree_provide_empty_on_cuda(
    Empty* function) {
  provided.store(function, std::memory_order_relaxed);
}

}  // namespace syncfree::ops
