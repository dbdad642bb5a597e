// A fiber: a function with a stack of its own, which can be left in the middle and continued later.
#pragma once

namespace cuda_on_cpu {

class Fiber {
 public:
  // `body(argument)` must not throw. The fiber may be destroyed before it has begun or ended; the
  // objects on its stack are not destroyed then.
  Fiber(void (*body)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it leaves or ends.
  void resume();
  // Returns to the caller of `resume`. Called by the body.
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
