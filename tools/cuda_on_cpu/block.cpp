// Barriers, warps and shared memory of one block.
#include "block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace cuda_on_cpu {

Thread* running = nullptr;

namespace {

constexpr std::size_t kMargin = 256;
constexpr unsigned char kMarginFill = 0xAB;
// A huge negative number as a float, negative as an integer, true as a bool.
constexpr unsigned char kSharedFill = 0xFB;

bool same(const Site& a, const Site& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

std::string text_of(const Site& site) {
  return std::string(site.file_name()) + ':' + std::to_string(site.line());
}

GuardedBytes::GuardedBytes(std::size_t size, unsigned char fill)
    : size_(size), all_((size + kMargin - 1) / kMargin * kMargin + kMargin) {
  bytes_.reset(static_cast<unsigned char*>(std::aligned_alloc(kMargin, all_)));
  if (bytes_ == nullptr) throw std::bad_alloc();
  std::memset(data(), fill, size);
  std::memset(data() + size, kMarginFill, all_ - size);
}

bool GuardedBytes::overrun() const {
  return std::any_of(data() + size_, data() + all_,
                     [](unsigned char byte) { return byte != kMarginFill; });
}

void GuardedBytes::Free::operator()(unsigned char* bytes) const {
  std::free(bytes);
}

Block::Block(unsigned number, unsigned threads, std::size_t dynamic_shared, void (*body)(void*))
    : index_(number), alive_(threads), warps_(threads / 32), dynamic_(dynamic_shared, kSharedFill) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back(*this, i, body);
}

std::string Block::first_overrun() const {
  if (dynamic_.overrun()) return "dynamic shared memory";
  const bool over = std::any_of(static_.begin(), static_.end(),
                                [](const SharedVariable& v) { return v.bytes->overrun(); });
  return over ? "a shared variable" : "";
}

bool Block::run(const Order& order) {
  bool progress = false;
  Order::Walk walk(order, threads_.size());
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[walk.next()];
    if (thread.state != Thread::State::kReady) continue;
    progress = true;
    if (order.sometimes(8)) continue;  // let others run ahead of it
    running = &thread;
    thread_index = {thread.index, 0, 0};
    thread.fiber.resume();
  }
  return progress;
}

// The thread that arrives last is ready already and need not leave.
void Block::wait(Thread& self) {
  if (self.state == Thread::State::kReady)
    maybe_yield();
  else
    self.fiber.leave();
}

void Block::release_barrier() {
  barrier_result_ = any_;
  any_ = 0;
  arrived_ = 0;
  const Thread* first = nullptr;
  for (Thread& thread : threads_) {
    if (thread.state != Thread::State::kAtBarrier) continue;
    if (first == nullptr) first = &thread;
    if (!same(thread.site, first->site))
      fail("threads of one block meet at different barriers, " + text_of(first->site) + " and " +
           text_of(thread.site));
    thread.state = Thread::State::kReady;
  }
}

int Block::barrier(Thread& self, int predicate, Site site) {
  self.site = site;
  self.what = "__syncthreads";
  self.state = Thread::State::kAtBarrier;
  any_ |= predicate;
  if (++arrived_ == alive_) release_barrier();
  wait(self);
  return barrier_result_;
}

std::uint64_t Block::exchange(Thread& self, std::uint64_t value, unsigned from, const char* what,
                              Site site) {
  Warp& warp = warps_[self.index / 32];
  const unsigned first = self.index / 32 * 32;
  const unsigned turn = self.exchanges++ % 2;
  warp.value[turn][self.index - first] = value;
  self.site = site;
  self.what = what;
  self.state = Thread::State::kAtWarp;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    for (unsigned i = first; i < first + 32; ++i) {
      Thread& lane = threads_[i];
      if (!same(lane.site, site))
        fail(std::string("lanes of one warp meet at different places, ") + what + " at " +
             text_of(site) + " and " + lane.what + " at " + text_of(lane.site));
      lane.state = Thread::State::kReady;
    }
  }
  wait(self);
  return warp.value[turn][from];
}

bool Block::brought_by_any(const Thread& self) const {
  const auto& value = warps_[self.index / 32].value[(self.exchanges - 1) % 2];
  return std::any_of(value, value + 32, [](std::uint64_t x) { return x != 0; });
}

bool Block::brought_by_all(const Thread& self) const {
  const auto& value = warps_[self.index / 32].value[(self.exchanges - 1) % 2];
  return std::all_of(value, value + 32, [](std::uint64_t x) { return x != 0; });
}

void* Block::static_shared(const void* key, std::size_t size) {
  for (const SharedVariable& variable : static_)
    if (variable.key == key) return variable.bytes->data();
  static_.push_back({key, std::make_unique<GuardedBytes>(size, kSharedFill)});
  return static_.back().bytes->data();
}

void Block::finish(Thread& self) {
  self.state = Thread::State::kDone;
  --alive_;
  // At a barrier the hardware counts threads that have ended as arrived.
  if (alive_ > 0 && arrived_ == alive_) release_barrier();
}

}  // namespace cuda_on_cpu
