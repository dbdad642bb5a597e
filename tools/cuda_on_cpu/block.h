// One block of a grid: its threads, their barriers and warps, and its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "grid.h"
#include "order.h"

namespace cuda_on_cpu {

class Block;

struct Thread {
  enum class State { kReady, kAtBarrier, kAtWarp, kDone };

  Thread(Block& of, unsigned number, void (*body)(void*))
      : block(of), index(number), fiber(body, this) {}

  Block& block;
  unsigned index;
  State state = State::kReady;
  // Where it waits, and in which function.
  Site site;
  const char* what = "";
  unsigned exchanges = 0;
  Fiber fiber;
};

// Bytes followed by a margin that reveals writes beyond the end.
class GuardedBytes {
 public:
  GuardedBytes(std::size_t size, unsigned char fill);

  unsigned char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  bool overrun() const;

 private:
  struct Free {
    void operator()(unsigned char* bytes) const;
  };
  std::size_t size_, all_;
  std::unique_ptr<unsigned char, Free> bytes_;
};

class Block {
 public:
  Block(unsigned number, unsigned threads, std::size_t dynamic_shared, void (*body)(void*));

  bool done() const { return alive_ == 0; }
  unsigned index() const { return index_; }
  const std::deque<Thread>& threads() const { return threads_; }
  std::string first_overrun() const;

  // Gives each ready thread a turn. False if none was ready.
  bool run(const Order& order);

  int barrier(Thread& self, int predicate, Site site);
  std::uint64_t exchange(Thread& self, std::uint64_t value, unsigned from, const char* what,
                         Site site);
  // Whether any or all lanes had a nonzero value in the last exchange of this thread.
  bool brought_by_any(const Thread& self) const;
  bool brought_by_all(const Thread& self) const;
  void* static_shared(const void* key, std::size_t size);
  void* dynamic_shared() { return dynamic_.data(); }
  void finish(Thread& self);

 private:
  // Two sets of values: lanes still read the last exchange while others begin the next one.
  struct Warp {
    std::uint64_t value[2][32];
    unsigned arrived = 0;
  };
  struct SharedVariable {
    const void* key;
    std::unique_ptr<GuardedBytes> bytes;
  };

  void wait(Thread& self);
  void release_barrier();

  unsigned index_;
  unsigned alive_, arrived_ = 0;
  int any_ = 0, barrier_result_ = 0;
  std::deque<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<SharedVariable> static_;
  GuardedBytes dynamic_;
};

// The thread whose turn it is.
extern Thread* running;

// Reports an error of the kernel, which the call that launched it raises.
[[noreturn]] void fail(const std::string& what);
std::string text_of(const Site& site);

}  // namespace cuda_on_cpu
