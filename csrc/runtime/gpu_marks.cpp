#include "runtime/gpu_marks.h"

#include <dlfcn.h>

#include <type_traits>

#include "runtime/own_call.h"

namespace syncfree::runtime {

void GpuMarks::use(void* driver, void* words) {
  if (driver == nullptr || words_ != nullptr) return;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(driver, name));
  };
  find("cuStreamWriteValue32_v2", write_);
  find("cuStreamIsCapturing", is_capturing_);
  find("cuCtxGetCurrent", context_);
  words_ = static_cast<volatile std::uint32_t*>(words);
}

std::size_t GpuMarks::place_of(const Stream& stream) const {
  const std::size_t used = used_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i)
    if (streams_[i].context == stream.context && streams_[i].handle == stream.handle) return i;
  if (used < kStreams) return used;
  for (std::size_t i = 0; i < kStreams; ++i)
    if (!is_pending(i)) return i;
  return kStreams;
}

bool GpuMarks::put(void* stream) {
  const std::lock_guard lock(mutex_);
  if (words_ == nullptr || write_ == nullptr || is_capturing_ == nullptr || context_ == nullptr)
    return false;
  const OwnCall own;
  int capturing = 0;
  if (is_capturing_(stream, &capturing) != 0 || capturing != 0) return false;
  void* context = nullptr;
  if (context_(&context) != 0 || context == nullptr) return false;
  const std::size_t place = place_of({context, stream});
  if (place == kStreams) return false;
  streams_[place] = {context, stream};
  // Counted before it is written, or a fast GPU would seem to be ahead of the host.
  const auto number = issued_[place].load(std::memory_order_relaxed) + 1;
  issued_[place].store(number, std::memory_order_relaxed);
  const auto address = reinterpret_cast<std::uint64_t>(words_ + place);
  if (write_(stream, address, number, 0) != 0) {
    issued_[place].store(number - 1, std::memory_order_relaxed);
    return false;
  }
  if (place == used_.load(std::memory_order_relaxed))
    used_.store(place + 1, std::memory_order_release);
  return true;
}

}  // namespace syncfree::runtime
