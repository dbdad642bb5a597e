// An array of zeros. There are many of them, and pages that are not written take no memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>

namespace syncfree::runtime {

template <typename T>
class ZeroedArray {
 public:
  explicit ZeroedArray(std::size_t count) : data_(static_cast<T*>(std::calloc(count, sizeof(T)))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ~ZeroedArray() { std::free(data_); }
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;
  T& operator[](std::size_t index) const { return data_[index]; }
  T* get() const { return data_; }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  T* data_;
};

}  // namespace syncfree::runtime
