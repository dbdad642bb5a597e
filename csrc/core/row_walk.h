// Walks the elements of several views of the same sizes in logical order, a row of the last
// dimension at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "core/dtype.h"

namespace syncfree {

// The sizes of the views and each view's strides, borrowed from them.
template <int kViews>
struct WalkedDims {
  int rank = 0;
  const std::int64_t* size = nullptr;
  const std::int64_t* stride[kViews] = {};
};

template <int kViews, int kMostDims>
class RowWalk {
 public:
  // Starts at logical element `index`, in views that begin at `base`.
  RowWalk(const WalkedDims<kViews>& dims, std::int64_t index,
          const std::int64_t (&base)[kViews] = {})
      : dims_(dims) {
    std::copy_n(base, kViews, offset_);
    for (int d = last(); d >= 0; --d) {
      if (dims_.size[d] == 0) return;  // there are no elements, and none is walked
      at_[d] = index % dims_.size[d];
      index /= dims_.size[d];
      move(d, at_[d]);
    }
  }

  std::int64_t offset(int view) const { return offset_[view]; }
  std::int64_t step(int view) const { return dims_.rank == 0 ? 0 : dims_.stride[view][last()]; }
  std::int64_t left_in_row() const {
    return dims_.rank == 0 ? 1 : dims_.size[last()] - at_[last()];
  }
  // How many whole rows from here on are `row_step` apart; 0 within a row.
  std::int64_t whole_rows() const {
    if (dims_.rank == 0 || at_[last()] != 0) return 0;
    return dims_.rank == 1 ? 1 : dims_.size[last() - 1] - at_[last() - 1];
  }
  std::int64_t row_step(int view) const {
    return dims_.rank < 2 ? 0 : dims_.stride[view][last() - 1];
  }

  // By `left_in_row` at most.
  void advance(std::int64_t count) {
    if (dims_.rank == 0) return;
    move(last(), count);
    at_[last()] += count;
    carry(last());
  }
  // By `whole_rows` at most.
  void advance_rows(std::int64_t count) {
    if (dims_.rank < 2) return advance(left_in_row());
    move(last() - 1, count);
    at_[last() - 1] += count;
    carry(last() - 1);
  }

 private:
  int last() const { return dims_.rank - 1; }
  void move(int d, std::int64_t count) {
    for (int k = 0; k < kViews; ++k) offset_[k] += count * dims_.stride[k][d];
  }
  void carry(int from) {
    for (int d = from; d > 0 && at_[d] == dims_.size[d]; --d) {
      move(d, -at_[d]);
      at_[d] = 0;
      move(d - 1, 1);
      ++at_[d - 1];
    }
  }

  WalkedDims<kViews> dims_;
  std::int64_t at_[kMostDims] = {};
  std::int64_t offset_[kViews] = {};
};

// Gathers `count` elements `step` apart into contiguous memory, converted. Compilers vectorize
// loops with a constant step; 3 and 4 are those of channels-last images.
template <class Out, class T>
void load_row(const T* from, std::int64_t step, std::int64_t count, Out* out) {
  const auto copy = [&](auto known) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Out, T>)
        out[i] = from[i * known];
      else
        out[i] = to<Out>(from[i * known]);
    }
  };
  switch (step) {
    case 1:
      return copy(std::integral_constant<std::int64_t, 1>{});
    case 3:
      return copy(std::integral_constant<std::int64_t, 3>{});
    case 4:
      return copy(std::integral_constant<std::int64_t, 4>{});
    default:
      return copy(step);
  }
}

// The same for `rows` rows of `count` elements, which are written one after another. Where the
// elements of a column are closer together than those of a row, they are read column by column.
template <class Out, class T>
void load_rows(const T* from, std::int64_t row_step, std::int64_t rows, std::int64_t step,
               std::int64_t count, Out* out) {
  if (std::abs(row_step) >= std::abs(step)) {
    for (std::int64_t r = 0; r < rows; ++r)
      load_row(from + r * row_step, step, count, out + r * count);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t r = 0; r < rows; ++r) {
      if constexpr (std::is_same_v<Out, T>)
        out[r * count + i] = from[i * step + r * row_step];
      else
        out[r * count + i] = to<Out>(from[i * step + r * row_step]);
    }
}

}  // namespace syncfree
