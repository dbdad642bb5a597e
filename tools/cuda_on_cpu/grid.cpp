// Runs the blocks of one launch, a few at once, and reports their errors.
#include "grid.h"

#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "block.h"

namespace cuda_on_cpu {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr std::size_t kBlocksAtOnce = 2;
// Limits of an H100 in bytes: shared memory without opting in for more, and a kernel's parameters.
constexpr std::size_t kUsualShared = 48 << 10;
constexpr std::size_t kMostParameters = 32764;

// Launches of several host threads take turns; the state below belongs to the launch that runs.
std::mutex launching;
std::map<const void*, std::size_t> allowed_shared;
const std::function<void()>* thread_body = nullptr;
std::exception_ptr failure;
std::optional<Order> order;

// Errors leave a kernel as exceptions, which must not leave the fiber.
void run_thread(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  try {
    (*thread_body)();
    thread.block.finish(thread);
  } catch (...) {
    if (!failure) failure = std::current_exception();
    thread.state = Thread::State::kDone;
  }
}

void check(const Configuration& configuration, std::size_t allowed, std::size_t parameter_bytes) {
  const auto [blocks, threads, shared, site] = configuration;
  if (blocks == 0 || blocks > 0x7fffffff) fail("a grid of " + std::to_string(blocks) + " blocks");
  if (threads == 0 || threads > 1024 || threads % 32 != 0)
    fail("a block of " + std::to_string(threads) +
         " threads; a whole number of warps, 1024 at "
         "most, is expected");
  if (shared > allowed)
    fail(std::to_string(shared) + " bytes of dynamic shared memory, but the kernel may use " +
         std::to_string(allowed));
  if (parameter_bytes > kMostParameters)
    fail(std::to_string(parameter_bytes) + " bytes of parameters");
}

std::string waiting_threads(const std::vector<std::unique_ptr<Block>>& blocks) {
  std::map<std::string, int> places;
  for (const auto& block : blocks)
    for (const Thread& thread : block->threads())
      if (thread.state != Thread::State::kDone)
        ++places["block " + std::to_string(block->index()) + " in " + thread.what + " at " +
                 text_of(thread.site)];
  std::string text;
  for (const auto& [place, count] : places)
    text += "\n  " + std::to_string(count) + " threads of " + place;
  return text;
}

void run_blocks(const Configuration& configuration) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::uint64_t started = 0;
  Order::Walk numbers(*order, configuration.blocks);
  while (started < configuration.blocks || !blocks.empty()) {
    while (started < configuration.blocks && blocks.size() < kBlocksAtOnce) {
      blocks.push_back(std::make_unique<Block>(static_cast<unsigned>(numbers.next()),
                                               static_cast<unsigned>(configuration.threads),
                                               configuration.shared, &run_thread));
      ++started;
    }
    bool progress = false;
    for (const auto& block : blocks) {
      if (order->sometimes(4)) {
        progress = true;
        continue;
      }
      block_index = {block->index(), 0, 0};
      progress |= block->run(*order);
      if (failure) std::rethrow_exception(failure);
    }
    progress |= std::erase_if(blocks, [](const auto& block) {
                  if (!block->done()) return false;
                  if (const std::string what = block->first_overrun(); !what.empty())
                    fail("a write beyond the end of " + what);
                  return true;
                }) > 0;
    if (!progress) fail("threads wait for each other:" + waiting_threads(blocks));
  }
}

}  // namespace

void fail(const std::string& what) {
  throw std::logic_error("CUDA on CPU: " + what);
}

void run_grid(const void* kernel, const Configuration& configuration, std::size_t parameter_bytes,
              const std::function<void()>& thread) {
  const std::lock_guard lock(launching);
  const auto found = allowed_shared.find(kernel);
  try {
    check(configuration, found == allowed_shared.end() ? kUsualShared : found->second,
          parameter_bytes);
    order = Order::from_environment();  // anew, so that a launch does not depend on earlier ones
    thread_body = &thread;
    failure = nullptr;
    block_size = {static_cast<unsigned>(configuration.threads), 1, 1};
    grid_size = {static_cast<unsigned>(configuration.blocks), 1, 1};
    run_blocks(configuration);
  } catch (const std::logic_error& error) {
    throw std::runtime_error(std::string(error.what()) + ", in the kernel launched at " +
                             text_of(configuration.site));
  }
}

void barrier(Site site) {
  running->block.barrier(*running, 0, site);
}

int barrier_or(int predicate, Site site) {
  return running->block.barrier(*running, predicate != 0, site);
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned from, const char* what,
                       Site site) {
  if (mask != ~0u) fail(std::string(what) + " of a part of a warp, which is not emulated");
  return running->block.exchange(*running, value, from, what, site);
}

bool vote_any(unsigned mask, bool predicate, Site site) {
  exchange(mask, predicate, 0, "__any_sync", site);
  return running->block.brought_by_any(*running);
}

bool vote_all(unsigned mask, bool predicate, Site site) {
  exchange(mask, predicate, 0, "__all_sync", site);
  return running->block.brought_by_all(*running);
}

void maybe_yield() {
  if (order->sometimes(4)) running->fiber.leave();
}

void* static_shared(const void* key, std::size_t size) {
  return running->block.static_shared(key, size);
}

void* dynamic_shared() {
  return running->block.dynamic_shared();
}

void allow_dynamic_shared(const void* kernel, int bytes) {
  const std::lock_guard lock(launching);
  allowed_shared[kernel] = static_cast<std::size_t>(bytes);
}

}  // namespace cuda_on_cpu
