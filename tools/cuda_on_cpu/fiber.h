// A function with a stack of its own that can be left in the middle and continued.
#pragma once

namespace cuda_on_cpu {

class Fiber {
 public:
  // `body(argument)` must not throw; the fiber may be destroyed at any time, running or not begun,
  // and what lives on its stack is then not destroyed.
  Fiber(void (*body)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it leaves or ends.
  void resume();
  // Back to who resumed it. Called by the body.
  void leave();

 private:
  static void enter();

  void (*body_)(void*);
  void* argument_;
  char* stack_;
  void* own_place_;
  void* callers_place_ = nullptr;
};

}  // namespace cuda_on_cpu
