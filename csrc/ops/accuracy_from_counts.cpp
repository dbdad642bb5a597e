// torch.ops.syncfree.accuracy_from_counts
#include <algorithm>
#include <optional>

#include "accuracy/from_counts.h"
#include "ops/accuracy_arguments.h"
#include "ops/backend.h"
#if defined(SYNCFREE_OPS_CUDA)
#include "ops/cuda_error_record.h"
#endif

namespace syncfree::ops {
namespace {

using accuracy::Average;
using accuracy::Reduction;
using accuracy::Task;

constexpr const char* kNames[accuracy::kCountKinds] = {"tp", "fp", "tn", "fn"};

void check_counts(const Tensor& tp, const Tensor& counts, const char* name) {
  check_same_device(tp, counts, "tp", name);
  const auto a = tp.sizes(), b = counts.sizes();
  if (counts.scalar_type() != ScalarType::Long)
    fail_value("Expected `", name, "` to be an int64 tensor, but got ", dtype_text(counts), ".");
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    fail_value("Expected `tp` and `", name, "` to have the same shape, but got ", shape_text(tp),
               " and ", shape_text(counts), ".");
}

// Counts have the shape (classes), (samples, classes), or, for binary samples, (samples).
void place_counts(const Tensor& counts, bool samplewise, bool binary, int kind,
                  Reduction& reduction) {
  const TensorView view = view_of(counts);
  reduction.data[kind] = static_cast<const std::int64_t*>(view.data);
  if (view.rank == 2) {
    reduction.group_stride[kind] = view.stride[0];
    reduction.class_stride[kind] = view.stride[1];
  } else if (view.rank == 1) {
    (samplewise && binary ? reduction.group_stride : reduction.class_stride)[kind] = view.stride[0];
  }
}

Tensor accuracy_from_counts(const Tensor& tp, const Tensor& fp, const Tensor& tn, const Tensor& fn,
                            const std::optional<Tensor>& bad, std::int64_t option_bits) {
  const AccuracyOptions options(option_bits);
  const bool binary = options.task == Task::kBinary;
  const std::int64_t most_dims = options.samplewise && !binary ? 2 : 1;
  if (tp.dim() > most_dims || (options.samplewise && tp.dim() < most_dims))
    fail_value("Expected counts of ", most_dims, " dimensions, but got shape ", shape_text(tp),
               ".");
  if (binary && !options.samplewise && tp.numel() != 1)
    fail_value("Expected binary counts of one element, but got shape ", shape_text(tp), ".");
  Reduction reduction;
  reduction.task = options.task;
  reduction.average = options.average;
  reduction.top_one = options.top_one;
  if (tp.dim() == 2) {
    reduction.groups = tp.size(0);
    reduction.classes = tp.size(1);
  } else if (tp.dim() == 1) {
    (options.samplewise ? reduction.groups : reduction.classes) = tp.size(0);
  }
  const Tensor* const counts[accuracy::kCountKinds] = {&tp, &fp, &tn, &fn};
  for (int kind = 0; kind < accuracy::kCountKinds; ++kind) {
    check_counts(tp, *counts[kind], kNames[kind]);
    place_counts(*counts[kind], options.samplewise, binary, kind, reduction);
  }
  if (bad.has_value()) {
    check_same_device(tp, *bad, "tp", "bad");
    if (bad->scalar_type() != ScalarType::Long || bad->numel() != 1)
      fail_value("Expected `bad` to be an int64 tensor of one element, but got shape ",
                 shape_text(*bad), ".");
    reduction.bad = static_cast<const std::int64_t*>(bad->const_data_ptr());
  }

  std::int64_t sizes[2];
  std::size_t rank = 0;
  if (options.samplewise) sizes[rank++] = reduction.groups;
  if (!binary && options.average == Average::kNone && tp.dim() > 0)
    sizes[rank++] = reduction.classes;
  Tensor value = empty_like_device({sizes, rank}, DType::kFloat32, tp);
  reduction.value = static_cast<float*>(value.mutable_data_ptr());
#if defined(SYNCFREE_OPS_CUDA)
  const CudaContext on(tp);
  if (options.validate) checked_error_slot(on, options.origin.slot);
#else
  const Tensor& on = tp;
#endif
  if (value.numel() > 0) execute(reduction, on);
  return value;
}

}  // namespace

#if !defined(SYNCFREE_OPS_CUDA)
STABLE_TORCH_LIBRARY_FRAGMENT(syncfree, library) {
  library.def(
      "accuracy_from_counts(Tensor tp, Tensor fp, Tensor tn, Tensor fn, Tensor? bad, "
      "int options) -> Tensor");
}
#endif

STABLE_TORCH_LIBRARY_IMPL(syncfree, SYNCFREE_DISPATCH_KEY, library) {
  library.impl("accuracy_from_counts", TORCH_BOX(&accuracy_from_counts));
}

}  // namespace syncfree::ops
