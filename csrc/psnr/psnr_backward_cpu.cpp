// The gradient of PSNR on the CPU.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/store_as.h"
#include "psnr/psnr_backward.h"

namespace syncfree::psnr {
namespace {

// Offsets of the four operands as they walk through the elements in logical order.
class Walk {
 public:
  Walk(const Elements& elements, std::int64_t index) : e_(elements) {
    for (int d = e_.rank - 1; d >= 0; --d) {
      at_[d] = index % e_.size[d];
      index /= e_.size[d];
      move(d, at_[d]);
    }
  }

  std::int64_t operator[](Operand operand) const { return offset_[operand]; }
  std::int64_t left_in_row() const { return e_.rank == 0 ? 1 : e_.size[last()] - at_[last()]; }
  std::int64_t step(Operand operand) const { return e_.rank == 0 ? 0 : e_.stride[operand][last()]; }

  // Not beyond the end of the row.
  void advance(std::int64_t count) {
    if (e_.rank == 0) return;
    move(last(), count);
    at_[last()] += count;
    for (int d = last(); d > 0 && at_[d] == e_.size[d]; --d) {
      move(d, -at_[d]);
      at_[d] = 0;
      move(d - 1, 1);
      ++at_[d - 1];
    }
  }

 private:
  int last() const { return e_.rank - 1; }
  void move(int d, std::int64_t count) {
    for (int k = 0; k < kOperands; ++k) offset_[k] += count * e_.stride[k][d];
  }

  const Elements& e_;
  std::int64_t at_[Elements::kMostDims] = {};
  std::int64_t offset_[kOperands] = {};
};

template <class Acc>
void load_row(const void* data, DType dtype, std::int64_t offset, std::int64_t step,
              std::int64_t count, Acc* out) {
  dispatch_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(data) + offset;
    // Compilers vectorise the loop whose step they know.
    if (step == 1)
      for (std::int64_t i = 0; i < count; ++i) out[i] = to<Acc>(from[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) out[i] = to<Acc>(from[i * step]);
  });
}

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
        reduced_(elements.reduced()),
        clamp_(make_clamp<Acc>(problem.range)) {}

  void operator()(std::int64_t begin, std::int64_t end) const {
    Walk walk(elements_, begin);
    while (begin < end) {
      const std::int64_t result = begin / reduced_;
      const std::int64_t count =
          std::min({kRun, end - begin, walk.left_in_row(), (result + 1) * reduced_ - begin});
      take(walk, static_cast<Acc>(coefficients_[result]), count);
      walk.advance(count);
      begin += count;
    }
  }

 private:
  static constexpr std::int64_t kRun = 2048;

  void take(const Walk& walk, Acc coefficient, std::int64_t count) const {
    Acc preds[kRun], target[kRun], gradient[kRun];
    const DType* dtype = problem_.dtype;
    load_row(problem_.preds, dtype[kPreds], walk[kPreds], walk.step(kPreds), count, preds);
    load_row(problem_.target, dtype[kTarget], walk[kTarget], walk.step(kTarget), count, target);
    for (std::int64_t i = 0; i < count; ++i)
      gradient[i] = coefficient * (clamp_(preds[i]) - clamp_(target[i]));
    write(kGradPreds, problem_.grad_preds, walk, preds, gradient, Acc(1), count);
    write(kGradTarget, problem_.grad_target, walk, target, gradient, Acc(-1), count);
  }

  // `own` has served and becomes the gradient. As torch.clamp: none where it changed a value.
  void write(Operand operand, void* data, const Walk& walk, Acc* own, const Acc* gradient, Acc sign,
             std::int64_t count) const {
    if (data == nullptr) return;
    if (clamp_.enabled)
      for (std::int64_t i = 0; i < count; ++i)
        own[i] = own[i] >= clamp_.low && own[i] <= clamp_.high ? sign * gradient[i] : Acc(0);
    else
      for (std::int64_t i = 0; i < count; ++i) own[i] = sign * gradient[i];
    store_row(own, data, problem_.dtype[operand], walk[operand], walk.step(operand), count);
  }

  const BackwardProblem& problem_;
  const Elements& elements_;
  const std::vector<double>& coefficients_;
  const std::int64_t reduced_;
  const Clamp<Acc> clamp_;
};

}  // namespace

void run(const BackwardProblem& problem, ParallelFor parallel_for) {
  const Elements elements = merged(problem.elements);
  const CoefficientScale scale = coefficient_scale(problem);
  const TensorView& gradient = problem.grad_value;
  std::vector<double> coefficients(elements.results());
  for (std::size_t i = 0; i < coefficients.size(); ++i)
    coefficients[i] =
        scale(problem.values[i], load_as<double>(gradient.data, gradient.dtype,
                                                 gradient.numel() == 1 ? 0 : std::int64_t(i)));
  const auto take = [&](auto gradients) {
    parallel_ranges(parallel_for, 0, elements.count(0, elements.rank), std::int64_t{1} << 15,
                    gradients);
  };
  if (problem.in_double())
    take(Gradients<double>(problem, elements, coefficients));
  else
    take(Gradients<float>(problem, elements, coefficients));
}

}  // namespace syncfree::psnr
