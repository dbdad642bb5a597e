// Counts the allocations of a thread while it is inside of a callback: to be preloaded.
#include <atomic>
#include <cstddef>

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);

static std::atomic<int> allocations = 0;
// Its place is known when the thread starts, so that to read it allocates nothing.
static __thread bool is_counted __attribute__((tls_model("initial-exec"))) = false;

__attribute__((visibility("default"))) void count_allocations(bool on) {
  is_counted = on;
}
__attribute__((visibility("default"))) int counted_allocations() {
  return allocations.exchange(0);
}

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  if (is_counted) ++allocations;
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  if (is_counted) ++allocations;
  return __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  if (is_counted) ++allocations;
  return __libc_realloc(memory, size);
}
}
