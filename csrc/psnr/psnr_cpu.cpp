// PSNR on the CPU: fixed chunks summed in parallel, finished in order.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/isa.h"
#include "core/merge_dims.h"
#include "core/store_as.h"
#include "psnr/psnr.h"
#include "psnr/psnr_math.h"

#define SYNCFREE_KERNEL "psnr/psnr_cpu_kernel.h"
#include "core/for_each_isa.h"

namespace syncfree::psnr {
namespace {

// Elements that are summed in float before the sum goes on in double.
constexpr std::int64_t kRun = 4096;

// Work for one thread: large enough to outweigh handing it out.
constexpr std::int64_t kMostChunks = 64;

using SumContiguous = double(const void* preds, const void* target, std::int64_t count,
                             bool clamped, double low, double high);

template <class T>
SumContiguous* contiguous_sum() {
  return select_isa<SumContiguous>(&baseline::psnr_squared_error<T>, &avx2::psnr_squared_error<T>,
                                   &avx512::psnr_squared_error<T>);
}

SumContiguous* contiguous_sum(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return contiguous_sum<float>();
    case DType::kFloat64:
      return contiguous_sum<double>();
    case DType::kFloat16:
      return contiguous_sum<Half>();
    case DType::kBFloat16:
      return contiguous_sum<BFloat16>();
    case DType::kUInt8:
      return contiguous_sum<std::uint8_t>();
    default:
      return nullptr;
  }
}

// Copies a run of logical elements side by side, in the type that the sum computes in.
template <class Acc>
void gather(const TensorView& view, int begin, std::int64_t base, std::int64_t first,
            std::int64_t count, Acc* out) {
  const int rank = view.rank;
  std::int64_t coordinate[kMaxRank] = {};
  std::int64_t offset = base, rest = first;
  for (int d = rank - 1; d >= begin; --d) {
    coordinate[d] = rest % view.size[d];
    rest /= view.size[d];
    offset += coordinate[d] * view.stride[d];
  }
  dispatch_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* data = static_cast<const T*>(view.data);
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = to<Acc>(data[offset]);
      for (int d = rank - 1; d >= begin; --d) {
        offset += view.stride[d];
        if (++coordinate[d] < view.size[d]) break;
        offset -= coordinate[d] * view.stride[d];
        coordinate[d] = 0;
      }
    }
  });
}

std::int64_t offset_of(const TensorView& view, int end, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = end - 1; d >= 0; --d) {
    offset += index % view.size[d] * view.stride[d];
    index /= view.size[d];
  }
  return offset;
}

struct Sum {
  const Problem& problem;
  TensorView preds;
  TensorView target;
  int kept;
  std::int64_t results = 1;
  std::int64_t reduced = 1;
  SumContiguous* same_type = nullptr;
  bool contiguous = false;
  bool clamped;

  explicit Sum(const Problem& p)
      : problem(p),
        preds(p.preds),
        target(p.target),
        kept(p.kept),
        clamped(p.range.source == DataRange::Source::kInterval) {
    merge_dims(preds, target, kept, preds.rank);
    kept = merge_dims(preds, target, 0, kept);
    for (int d = 0; d < preds.rank; ++d) (d < kept ? results : reduced) *= preds.size[d];
    const int inner = preds.rank - 1;
    if (preds.dtype == target.dtype) same_type = contiguous_sum(preds.dtype);
    contiguous = same_type != nullptr &&
                 (preds.rank == kept || (preds.rank == kept + 1 && preds.stride[inner] == 1 &&
                                         target.stride[inner] == 1));
  }

  double operator()(std::int64_t result, std::int64_t begin, std::int64_t end) const {
    const std::int64_t a = offset_of(preds, kept, result), b = offset_of(target, kept, result);
    const bool wide = preds.dtype == DType::kFloat64 || target.dtype == DType::kFloat64;
    double sum = 0.0;
    for (std::int64_t first = begin; first < end; first += kRun) {
      const std::int64_t count = std::min(kRun, end - first);
      if (contiguous) {
        sum += same_type(at(preds, a + first), at(target, b + first), count, clamped,
                         problem.range.low, problem.range.high);
      } else if (wide) {
        sum += gathered<double>(a, b, first, count);
      } else {
        sum += gathered<float>(a, b, first, count);
      }
    }
    return sum;
  }

 private:
  static const void* at(const TensorView& view, std::int64_t offset) {
    return static_cast<const char*>(view.data) + offset * size_of(view.dtype);
  }

  template <class Acc>
  double gathered(std::int64_t a, std::int64_t b, std::int64_t first, std::int64_t count) const {
    alignas(64) thread_local Acc x[kRun];
    alignas(64) thread_local Acc y[kRun];
    gather(preds, kept, a, first, count, x);
    gather(target, kept, b, first, count, y);
    return contiguous_sum<Acc>()(x, y, count, clamped, problem.range.low, problem.range.high);
  }
};

}  // namespace

void run(const Problem& problem, ParallelFor parallel_for) {
  const Sum sum(problem);
  const Chunks chunks = make_chunks(sum.reduced, kRun, kMostChunks);
  std::vector<double> partial(static_cast<std::size_t>(sum.results * chunks.count));
  const std::int64_t grain = std::max<std::int64_t>(
      1, 32768 / std::max<std::int64_t>(1, std::min(chunks.elements, sum.reduced)));
  parallel_ranges(parallel_for, 0, sum.results * chunks.count, grain,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t item = begin; item < end; ++item) {
                      const std::int64_t first = item % chunks.count * chunks.elements;
                      partial[item] = sum(item / chunks.count, first,
                                          std::min(first + chunks.elements, sum.reduced));
                    }
                  });

  const Scale scale = make_scale(problem.range.width(), problem.base);
  double total = 0.0;
  for (std::int64_t result = 0; result < sum.results; ++result) {
    double squared = 0.0;
    for (std::int64_t c = 0; c < chunks.count; ++c) squared += partial[result * chunks.count + c];
    const double value = value_of(result, squared, sum.reduced, scale, problem.states);
    if (problem.reduction == Reduction::kNone || problem.kept == 0)
      store_as(problem.value, problem.result_dtype, result, value);
    else
      total += value;
  }
  if (problem.reduction == Reduction::kNone || problem.kept == 0) return;
  store_as(
      problem.value, problem.result_dtype, 0,
      problem.reduction == Reduction::kMean ? total / static_cast<double>(sum.results) : total);
}

}  // namespace syncfree::psnr
