// A block for each stream, of which scalars are views past torch's dispatcher.
#include "ops/cuda_scalar.h"

#include <compare>
#include <map>
#include <mutex>
#include <optional>

#include "ops/cuda_context.h"

namespace syncfree::ops {
namespace {

constexpr std::int64_t kScalars = 128;

struct Key {
  int device;
  unsigned long long stream;
  ScalarPool pool;

  auto operator<=>(const Key&) const = default;
};

struct Block {
  std::mutex mutex;
  std::optional<Tensor> memory;
  std::int64_t used = kScalars;
};

Block& block_of(const Key& key) {
  // Never destroyed: at exit CUDA may be gone before static objects are.
  static std::mutex& mutex = *new std::mutex;
  static auto& blocks = *new std::map<Key, Block>;
  const std::lock_guard lock(mutex);
  return blocks[key];
}

}  // namespace

Tensor cuda_scalar(const Tensor& like, ScalarPool pool) {
  const CudaContext context(like);
  if (pool == ScalarPool::kNone || context.is_capturing())
    return empty_like_device({}, DType::kFloat32, like);
  Key key{context.device(), 0, pool};
  check_cuda(cudaStreamGetId(context.stream(), &key.stream));
  Block& block = block_of(key);
  const std::lock_guard lock(block.mutex);
  if (block.used == kScalars) {
    block.memory = empty_like_device({&kScalars, 1}, DType::kFloat32, like);
    block.used = 0;
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(block.memory->get(), 0, nullptr, nullptr,
                                                        block.used, &handle));
  ++block.used;
  return Tensor(handle);
}

}  // namespace syncfree::ops
