// The gradient of PSNR on the CPU.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/row_walk.h"
#include "core/store_as.h"
#include "psnr/psnr_backward.h"

namespace syncfree::psnr {
namespace {

template <class Acc>
void store_row(const Acc* from, void* data, DType dtype, std::int64_t offset, std::int64_t step,
               std::int64_t count) {
  if (dtype == DType::kFloat32) {
    float* out = static_cast<float*>(data) + offset;
    if (step == 1)
      std::copy_n(from, count, out);
    else
      for (std::int64_t i = 0; i < count; ++i) out[i * step] = static_cast<float>(from[i]);
    return;
  }
  if (dtype == DType::kFloat16 && sizeof(Acc) == 4) {
    Half* out = static_cast<Half*>(data) + offset;
    for (std::int64_t i = 0; i < count; ++i)
      out[i * step] = {detail::float_to_half_bits(static_cast<float>(from[i]))};
    return;
  }
  if (dtype == DType::kBFloat16 && sizeof(Acc) == 4) {
    BFloat16* out = static_cast<BFloat16*>(data) + offset;
    for (std::int64_t i = 0; i < count; ++i)
      out[i * step] = {detail::float_to_bfloat16_bits(static_cast<float>(from[i]))};
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    store_as(data, dtype, offset + i * step, static_cast<double>(from[i]));
}

template <class Acc>
class Gradients {
 public:
  Gradients(const BackwardProblem& problem, const Elements& elements,
            const std::vector<double>& coefficients)
      : problem_(problem),
        elements_(elements),
        coefficients_(coefficients),
        clamp_(make_clamp<Acc>(problem.range, problem.dtype[kPreds], problem.dtype[kTarget])) {}

  void operator()(std::int64_t begin, std::int64_t end) const {
    WalkedDims<kOperands> dims{elements_.rank, elements_.size, {}};
    std::copy_n(elements_.stride, kOperands, dims.stride);
    Walk walk(dims, begin);
    while (begin < end) {
      const std::int64_t count = std::min({kRun, end - begin, walk.left_in_row()});
      take(walk, count);
      walk.advance(count);
      begin += count;
    }
  }

 private:
  using Walk = RowWalk<kOperands, Elements::kMostDims>;
  static constexpr std::int64_t kRun = 2048;

  void take(const Walk& walk, std::int64_t count) const {
    Acc preds[kRun], target[kRun], gradient[kRun];
    read(kPreds, problem_.preds, walk, count, preds);
    read(kTarget, problem_.target, walk, count, target);
    const double* coefficient = coefficients_.data() + walk.offset(kCoefficient);
    const std::int64_t step = walk.step(kCoefficient);
    const auto scale = [&](auto coefficient_of) {
      for (std::int64_t i = 0; i < count; ++i)
        gradient[i] = coefficient_of(i) * (clamp_(preds[i]) - clamp_(target[i]));
    };
    if (step == 0)
      scale([one = static_cast<Acc>(*coefficient)](std::int64_t) { return one; });
    else
      scale([&](std::int64_t i) { return static_cast<Acc>(coefficient[i * step]); });
    write(kGradPreds, problem_.grad_preds, walk, preds, gradient, Acc(1), count);
    write(kGradTarget, problem_.grad_target, walk, target, gradient, Acc(-1), count);
  }

  void read(Operand operand, const void* data, const Walk& walk, std::int64_t count,
            Acc* out) const {
    dispatch_dtype(problem_.dtype[operand], [&]<class T>(TypeTag<T>) {
      load_row(static_cast<const T*>(data) + walk.offset(operand), walk.step(operand), count, out);
    });
  }

  // `own` is no longer needed and is overwritten with the gradient.
  void write(Operand operand, void* data, const Walk& walk, Acc* own, const Acc* gradient, Acc sign,
             std::int64_t count) const {
    if (data == nullptr) return;
    if (clamp_.enabled)
      for (std::int64_t i = 0; i < count; ++i)
        own[i] = clamp_.passes(own[i]) ? sign * gradient[i] : Acc(0);
    else
      for (std::int64_t i = 0; i < count; ++i) own[i] = sign * gradient[i];
    store_row(own, data, problem_.dtype[operand], walk.offset(operand), walk.step(operand), count);
  }

  const BackwardProblem& problem_;
  const Elements& elements_;
  const std::vector<double>& coefficients_;
  const Clamp<Acc> clamp_;
};

}  // namespace

void run(const BackwardProblem& problem, ParallelFor parallel_for) {
  const Elements elements = in_order_of_memory(problem.elements);
  const CoefficientScale scale = coefficient_scale(problem);
  const TensorView& gradient = problem.grad_value;
  std::vector<double> coefficients(static_cast<std::size_t>(problem.results));
  constexpr std::int64_t kGrain = std::int64_t{1} << 15;
  parallel_ranges(
      parallel_for, 0, problem.results, kGrain / 8, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          coefficients[i] =
              scale(problem.squared_errors[i],
                    load_as<double>(gradient.data, gradient.dtype, gradient.numel() == 1 ? 0 : i));
      });
  const auto take = [&](auto gradients) {
    parallel_ranges(parallel_for, 0, elements.count(), kGrain, gradients);
  };
  if (problem.in_double())
    take(Gradients<double>(problem, elements, coefficients));
  else
    take(Gradients<float>(problem, elements, coefficients));
}

}  // namespace syncfree::psnr
