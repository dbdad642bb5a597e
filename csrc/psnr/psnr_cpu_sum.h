// Squared errors on the CPU. Elements are taken in logical order, in runs that begin at the same
// elements in every layout: a layout changes how they are read, but no bit of the sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/isa.h"
#include "core/row_walk.h"
#include "psnr/psnr_math.h"
#include "psnr/psnr_operands.h"

#define SYNCFREE_KERNEL "psnr/psnr_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::psnr {

// A run: elements that are summed in float before the sum goes on in double.
inline constexpr std::int64_t kRun = 4096;

// Runs up to this length are not worth a call each.
inline constexpr std::int64_t kShort = 64;

class SquaredErrors {
 public:
  explicit SquaredErrors(const Problem& problem)
      : o_(make_operands(problem)),
        clamp_(make_clamp<double>(problem.range, problem.preds.dtype, problem.target.dtype)) {}

  const Operands& operands() const { return o_; }
  std::int64_t results() const { return o_.results; }
  std::int64_t reduced() const { return o_.reduced; }
  std::int64_t runs() const { return (o_.reduced + kRun - 1) / kRun; }  // of a result

  // The squared error of elements [begin, end) of one result.
  double of_elements(std::int64_t result, std::int64_t begin, std::int64_t end) const {
    const Walk kept = walk_results(result);
    return with_type([&]<class T>(TypeTag<T>) {
      double sum = 0.0;
      for (std::int64_t first = begin; first < end; first += kRun)
        sum += of_run<T>(kept, first, std::min(kRun, end - first));
      return sum;
    });
  }

  // The squared errors of `count` results of one run each.
  void of_results(std::int64_t first, std::int64_t count, double* sums) const {
    with_type([&]<class T>(TypeTag<T>) {
      Walk kept = walk_results(first);
      while (count > 0) {
        const std::int64_t taken = take_results<T>(kept, count, sums);
        kept.advance(taken);
        sums += taken;
        count -= taken;
      }
    });
  }

  // The squared error of two contiguous runs.
  template <class T>
  double of_buffers(const T* x, const T* y, std::int64_t count) const {
    if (count > kShort) {
      static const auto sum =
          select_isa<SumContiguous>(&baseline::psnr_squared_error<T>, &avx2::psnr_squared_error<T>,
                                    &avx512::psnr_squared_error<T>);
      return sum(x, y, count, clamp_.enabled, clamp_.low, clamp_.high);
    }
    using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Clamp<Acc> clamp{
        clamp_.enabled, static_cast<Acc>(clamp_.low), static_cast<Acc>(clamp_.high), {}, {}};
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Acc d = clamp(to<Acc>(x[i])) - clamp(to<Acc>(y[i]));
      sum += static_cast<double>(d) * d;
    }
    return sum;
  }

  // Calls f with the operands' type, if runs are gathered in that type.
  template <class F>
  void with_own_type(F&& f) const {
    with_type([&]<class T>(TypeTag<T> tag) {
      if (are<T>()) f(tag);
      return 0.0f;
    });
  }

 private:
  using SumContiguous = double(const void* preds, const void* target, std::int64_t count,
                               bool clamped, double low, double high);
  using Widen = void(const void* from, std::int64_t count, void* out);
  using Walk = RowWalk<2, kMaxRank>;
  static constexpr int kPreds = 0, kTarget = 1;

  // Calls f with the type in which runs are gathered: the operands' own, or that of the arithmetic.
  template <class F>
  std::invoke_result_t<F, TypeTag<float>> with_type(F&& f) const {
    if (o_.preds.dtype == o_.target.dtype) {
      switch (o_.preds.dtype) {
        case DType::kFloat16:
          return f(TypeTag<Half>{});
        case DType::kBFloat16:
          return f(TypeTag<BFloat16>{});
        case DType::kUInt8:
          return f(TypeTag<std::uint8_t>{});
        default:
          break;
      }
    }
    if (wants_double(o_.preds.dtype) || wants_double(o_.target.dtype)) return f(TypeTag<double>{});
    return f(TypeTag<float>{});
  }

  Walk walk_results(std::int64_t result) const {
    return Walk({o_.kept, o_.preds.size, {o_.preds.stride, o_.target.stride}}, result);
  }
  Walk walk_elements(const Walk& result, std::int64_t element) const {
    const int kept = o_.kept;
    return Walk({o_.preds.rank - kept,
                 o_.preds.size + kept,
                 {o_.preds.stride + kept, o_.target.stride + kept}},
                element, {result.offset(kPreds), result.offset(kTarget)});
  }

  // Sums as many of the next results of a kept row as are read at once; returns how many.
  template <class T>
  std::int64_t take_results(const Walk& kept, std::int64_t most, double* sums) const {
    const std::int64_t row = std::min(most, kept.left_in_row());
    if (reads_in_place<T>()) {
      for (std::int64_t i = 0; i < row; ++i)
        sums[i] =
            of_buffers(at<T>(o_.preds, kept.offset(kPreds) + i * kept.step(kPreds)),
                       at<T>(o_.target, kept.offset(kTarget) + i * kept.step(kTarget)), o_.reduced);
      return row;
    }
    if (o_.preds.rank != o_.kept + 1) {
      *sums = of_run<T>(kept, 0, o_.reduced);
      return 1;
    }
    if (lie_beside_each_other<T>(kept)) {
      add_columns<T>(kept, row, sums);
      return row;
    }
    alignas(64) T x[kRun];
    alignas(64) T y[kRun];
    const std::int64_t count = std::min(row, kRun / std::max<std::int64_t>(o_.reduced, 1));
    const int inner = o_.preds.rank - 1;
    read(o_.preds, kept.offset(kPreds), kept.step(kPreds), count, o_.preds.stride[inner],
         o_.reduced, x);
    read(o_.target, kept.offset(kTarget), kept.step(kTarget), count, o_.target.stride[inner],
         o_.reduced, y);
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] = of_buffers(x + i * o_.reduced, y + i * o_.reduced, o_.reduced);
    return count;
  }

  // Whether results have few elements, and adjacent results have adjacent elements in memory.
  template <class T>
  bool lie_beside_each_other(const Walk& kept) const {
    // Squares of floats are exact in double, whether or not an instruction set fuses square and
    // addition: the same bits as one result after another.
    constexpr bool is_exact = !std::is_same_v<T, double>;
    return is_exact && o_.reduced <= kShort && are<T>() && kept.step(kPreds) == 1 &&
           kept.step(kTarget) == 1;
  }

  template <class T>
  void add_columns(const Walk& kept, std::int64_t count, double* sums) const {
    if constexpr (!std::is_same_v<T, double>) {
      static const auto add =
          select_isa(&baseline::psnr_add_squared_errors<T>, &avx2::psnr_add_squared_errors<T>,
                     &avx512::psnr_add_squared_errors<T>);
      const int inner = o_.preds.rank - 1;
      std::fill_n(sums, count, 0.0);
      for (std::int64_t i = 0; i < o_.reduced; ++i)
        add(at<T>(o_.preds, kept.offset(kPreds) + i * o_.preds.stride[inner]),
            at<T>(o_.target, kept.offset(kTarget) + i * o_.target.stride[inner]), count,
            clamp_.enabled, clamp_.low, clamp_.high, sums);
    }
  }

  template <class T>
  double of_run(const Walk& kept, std::int64_t first, std::int64_t count) const {
    if (reads_in_place<T>())
      return of_buffers(at<T>(o_.preds, kept.offset(kPreds) + first),
                        at<T>(o_.target, kept.offset(kTarget) + first), count);
    alignas(64) T x[kRun];
    alignas(64) T y[kRun];
    Walk walk = walk_elements(kept, first);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = std::min(walk.left_in_row(), count - done);
      const std::int64_t rows =
          std::max<std::int64_t>(1, std::min(walk.whole_rows(), (count - done) / row));
      for (const int view : {kPreds, kTarget})
        read(view == kPreds ? o_.preds : o_.target, walk.offset(view), walk.row_step(view), rows,
             walk.step(view), row, (view == kPreds ? x : y) + done);
      if (rows > 1)
        walk.advance_rows(rows);
      else
        walk.advance(row);
      done += rows * row;
    }
    return of_buffers(x, y, count);
  }

  template <class T>
  static const T* at(const TensorView& view, std::int64_t offset) {
    return static_cast<const T*>(view.data) + offset;
  }

  template <class T>
  static void read(const TensorView& view, std::int64_t offset, std::int64_t row_step,
                   std::int64_t rows, std::int64_t step, std::int64_t count, T* out) {
    if constexpr (std::is_floating_point_v<T>)
      dispatch_dtype(view.dtype, [&]<class From>(TypeTag<From>) {
        const From* from = at<From>(view, offset);
        if (step != 1 || count <= kShort) {
          load_rows(from, row_step, rows, step, count, out);
          return;
        }
        static const auto widen =
            select_isa<Widen>(&baseline::psnr_widen<From, T>, &avx2::psnr_widen<From, T>,
                              &avx512::psnr_widen<From, T>);
        for (std::int64_t r = 0; r < rows; ++r) widen(from + r * row_step, count, out + r * count);
      });
    else
      load_rows(at<T>(view, offset), row_step, rows, step, count, out);
  }

  // Whether both operands have type T.
  template <class T>
  bool are() const {
    const auto is_t = [](DType dtype) {
      return dispatch_dtype(dtype,
                            []<class From>(TypeTag<From>) { return std::is_same_v<From, T>; });
    };
    return is_t(o_.preds.dtype) && is_t(o_.target.dtype);
  }
  // Whether the elements of a result are contiguous already, as T.
  template <class T>
  bool reads_in_place() const {
    return o_.contiguous && are<T>();
  }

  const Operands o_;
  const Clamp<double> clamp_;
};

}  // namespace syncfree::psnr
