// The order in which blocks and threads take turns. CUDA allows any order, so results must not
// depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>

namespace cuda_on_cpu {

class Order {
 public:
  // CUDA_ON_CPU_ORDER: forward, reverse, or a number that seeds a random order.
  static Order from_environment() {
    const char* text = std::getenv("CUDA_ON_CPU_ORDER");
    const std::string name = text == nullptr ? "forward" : text;
    if (name == "forward") return Order(Kind::kForward, 0);
    if (name == "reverse") return Order(Kind::kReverse, 0);
    try {
      return Order(Kind::kRandom, std::stoull(name));
    } catch (const std::logic_error&) {
      throw std::runtime_error(
          "CUDA_ON_CPU_ORDER is `forward`, `reverse` or the seed of a random order, but got `" +
          name + "`.");
    }
  }

  bool random() const { return kind_ == Kind::kRandom; }

  // True once in `times` calls on average, but only in random order.
  bool sometimes(unsigned times) const { return random() && next() % times == 0; }

  // A permutation of 0 to count - 1, one value per call.
  class Walk {
   public:
    Walk(const Order& order, std::uint64_t count) : count_(count) {
      if (order.kind_ == Kind::kReverse) {
        at_ = count - 1;
        step_ = count - 1;
      } else if (order.random()) {
        at_ = order.next() % count;
        do step_ = 1 + order.next() % count;
        while (std::gcd(step_, count) != 1);
      }
    }
    std::uint64_t next() {
      const std::uint64_t value = at_;
      at_ = (at_ + step_) % count_;
      return value;
    }

   private:
    std::uint64_t count_, at_ = 0, step_ = 1;
  };

 private:
  enum class Kind { kForward, kReverse, kRandom };

  Order(Kind kind, std::uint64_t seed)
      : kind_(kind), state_(0x9E3779B97F4A7C15u * (seed + 1) | 1) {}

  // Marsaglia, "Xorshift RNGs", 2003.
  std::uint64_t next() const {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

  Kind kind_;
  mutable std::uint64_t state_;
};

}  // namespace cuda_on_cpu
