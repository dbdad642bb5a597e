// csrc/runtime/thread_logs.cpp, where a thread cannot keep its log unless the test allows it.
#include <pthread.h>
#include <cerrno>

namespace {

bool has_memory = true;

int set_specific(pthread_key_t key, const void* value) {
  return has_memory ? pthread_setspecific(key, value) : ENOMEM;
}

}  // namespace

#define pthread_setspecific set_specific
#include "runtime/thread_logs.cpp"

extern "C" {

// How many of so many threads, one after the other, get a log. None gives one back.
int threads_with_a_log(int threads, bool memory) {
  static auto& logs = *new syncfree::runtime::ThreadLogs;
  has_memory = memory;
  int with = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_t thread{};
    const auto ask = [](void* out) -> void* {
      *static_cast<int*>(out) += logs.mine() != nullptr;
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, ask, &with) != 0) return -1;
    pthread_join(thread, nullptr);
  }
  return with;
}
}
