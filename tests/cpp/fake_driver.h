// Functions of tests/fake_libcuda.cpp, which SYNCFREE_LIBCUDA names: a driver whose time the tests
// decide.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

template <class Function>
Function* fake(const char* name) {
  static void* const library = dlopen(std::getenv("SYNCFREE_LIBCUDA"), RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

inline constexpr std::uint64_t kStream = 0x55;

inline void work(double us) {
  fake<void(std::uint64_t, std::int64_t)>("fake_work")(kStream,
                                                       static_cast<std::int64_t>(us * 1e3));
}

inline void pass(double us) {
  fake<void(std::int64_t)>("fake_pass")(static_cast<std::int64_t>(us * 1e3));
}

inline long called(const char* name) {
  return fake<long(const char*)>("fake_calls")(name);
}
