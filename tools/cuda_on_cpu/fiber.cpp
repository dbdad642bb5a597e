// Fibers for x86-64. swapcontext would work, but it saves the signal mask with a system call each
// time.
#include "fiber.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

#if !defined(__x86_64__)
#error "The emulator switches stacks by instructions of x86-64."
#endif

// Saves the callee-saved registers, then continues where `to` was saved.
extern "C" void cuda_on_cpu_switch(void** from, void* to);
asm(R"(
.text
.globl cuda_on_cpu_switch
.hidden cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStack = 128 << 10;
constexpr int kSavedRegisters = 6;

// Stacks are reused: a grid starts thousands of fibers, of which few exist at once.
std::vector<char*>& spare_stacks() {
  static std::vector<char*> stacks;
  return stacks;
}

char* take_stack() {
  auto& spare = spare_stacks();
  if (!spare.empty()) {
    char* stack = spare.back();
    spare.pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  mprotect(stack, kPage, PROT_NONE);  // the lowest page: an overflow faults
  return static_cast<char*>(stack);
}

Fiber* entering = nullptr;

}  // namespace

Fiber::Fiber(void (*body)(void*), void* argument)
    : body_(body), argument_(argument), stack_(take_stack()) {
  // The stack as cuda_on_cpu_switch leaves it. A function expects the stack pointer 8 bytes off a
  // multiple of 16, as after a call.
  auto* top = reinterpret_cast<void**>(stack_ + kStack - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::enter);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  own_place_ = top;
}

Fiber::~Fiber() {
  spare_stacks().push_back(stack_);
}

void Fiber::enter() {
  Fiber* self = entering;
  self->body_(self->argument_);
  self->leave();
  __builtin_unreachable();
}

void Fiber::resume() {
  entering = this;
  cuda_on_cpu_switch(&callers_place_, own_place_);
}

void Fiber::leave() {
  cuda_on_cpu_switch(&own_place_, callers_place_);
}

}  // namespace cuda_on_cpu
