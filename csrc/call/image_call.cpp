// Calls an operator on two images, perhaps states, and options, when no gradient is recorded.
#include <ATen/core/grad_mode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <cstddef>
#include <utility>

#include "callable.h"
#include "kept_options.h"
#include "module.h"
#include "operator.h"

namespace syncfree::call {
namespace {

struct ImageOperator {
  Operator op;
  std::size_t tensors;
  bool has_gradient;
  KeptOptions options;
};

// The floating dtypes of `_READ_BY_KERNELS` in functional/image/_images.py.
bool is_floating(const at::Tensor& image) {
  switch (image.scalar_type()) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      return true;
    default:
      return false;
  }
}

bool are_bytes(const at::Tensor& preds, const at::Tensor& target) {
  return preds.scalar_type() == at::kByte && target.scalar_type() == at::kByte;
}

// Whether no gradient is to be recorded or refused, and the kernels read these dtypes as they are.
// The usual callable may convert other images first.
bool are_plain(const at::Tensor& preds, const at::Tensor& target, bool has_gradient) {
  const bool records = has_gradient && at::GradMode::is_enabled() &&
                       (preds.requires_grad() || target.requires_grad());
  return !records && torch::autograd::ForwardADLevel::try_get_by_idx(0) == nullptr &&
         (are_bytes(preds, target) || (is_floating(preds) && is_floating(target)));
}

bool push_tensors(const ImageOperator& images, PyObject* const* arguments, Stack& stack) {
  for (std::size_t i = 0; i < images.tensors; ++i)
    if (!push(images.op.parameters[i], arguments[i], stack)) return false;
  return true;
}

PyObject* call_images(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                      PyObject* names) {
  return with_errors([&]() -> PyObject* {
    const auto& images = what_calls<ImageOperator>(self);
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
    Stack stack;
    stack.reserve(images.op.parameters.size());
    if (names != nullptr || function_mode_is_on() || count < images.tensors ||
        !push_tensors(images, arguments, stack) ||
        !are_plain(stack[0].toTensor(), stack[1].toTensor(), images.has_gradient))
      return call_usual(self, arguments, flagged, names);

    c10::SmallVector<PyObject*, 16> given;
    given.push_back(are_bytes(stack[0].toTensor(), stack[1].toTensor()) ? Py_True : Py_False);
    given.append(arguments + images.tensors, arguments + count);
    if (!images.options.push(given.data(), given.size(), stack)) {
      if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
      PyErr_Clear();  // the usual callable raises it again, unless it refuses an image first
      return call_usual(self, arguments, flagged, names);
    }
    return run(images.op, std::move(stack));
  });
}

}  // namespace

PyObject* images(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *overload = nullptr;
  Py_ssize_t states = 0;
  int has_gradient = 0;
  PyObject *check = nullptr, *usual = nullptr;
  if (!PyArg_ParseTuple(arguments, "ssnpOO", &name, &overload, &states, &has_gradient, &check,
                        &usual))
    return nullptr;
  return with_errors([&]() -> PyObject* {
    auto op = operator_of(name, overload);
    const std::size_t tensors = kImages + static_cast<std::size_t>(states);
    if (!op || !are_tensors(*op, 0, tensors)) return Py_NewRef(usual);
    KeptOptions options(check, parameters_behind(*op, tensors));
    return make_callable(
        call_images, usual,
        new ImageOperator{std::move(*op), tensors, has_gradient != 0, std::move(options)});
  });
}

}  // namespace syncfree::call
