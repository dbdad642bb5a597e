// Pairs of tensors of any rank, reduced to as many dimensions as a kernel's view holds.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "core/merge_dims.h"
#include "ops/torch_abi.h"

namespace syncfree::ops {

// Sizes and strides as in a TensorView, without its limit on the rank.
struct WideView {
  int rank = 0;
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> stride;
};

inline WideView wide_view_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  std::int64_t* strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  return {static_cast<int>(sizes.size()),
          {sizes.begin(), sizes.end()},
          {strides, strides + sizes.size()}};
}

// Two views of equal sizes. Their dimensions form two groups: the first `leading`, and the others.
struct Operands {
  TensorView first;
  TensorView second;
  int leading = 0;
  std::vector<Tensor> owners;  // keep the views' memory alive where the callers' tensors do not
};

// The memory of `tensor` with the sizes and strides of `view`.
inline Tensor reinterpreted(const Tensor& tensor, const WideView& view) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(tensor.get(), view.rank, view.size.data(),
                                                        view.stride.data(), 0, &handle));
  return Tensor(handle);
}

// Merges the dimensions of each group. Nearly every layout then fits into a view; for the others
// the operands are copied, on the device and its current stream, so that each group becomes one
// dimension. A leading group that had dimensions keeps at least one, since without any the kernels
// may sum in another order.
inline Operands merged(const Tensor& first, WideView first_view, const Tensor& second,
                       WideView second_view, int leading) {
  const bool grouped = leading > 0;
  merge_dims(first_view, second_view, leading, first_view.rank);
  leading = merge_dims(first_view, second_view, 0, leading);
  if (grouped && leading == 0) {
    for (WideView* view : {&first_view, &second_view}) {
      view->size.insert(view->size.begin(), 1);
      view->stride.insert(view->stride.begin(), 0);
      ++view->rank;
    }
    leading = 1;
  }
  Operands out;
  out.leading = leading;
  out.owners = {reinterpreted(first, first_view), reinterpreted(second, second_view)};
  if (first_view.rank > kMaxRank) {
    std::vector<std::int64_t> sizes(grouped ? 2 : 1, 1);
    for (int d = 0; d < first_view.rank; ++d)
      (d < leading ? sizes.front() : sizes.back()) *= first_view.size[d];
    for (Tensor& owner : out.owners) owner = torch::stable::reshape(owner, sizes);
    out.leading = grouped ? 1 : 0;
  }
  out.first = view_of(out.owners[0]);
  out.second = view_of(out.owners[1]);
  return out;
}

// Like empty_like_device, for any rank.
inline Tensor empty_of_any_rank(const std::vector<std::int64_t>& sizes, DType dtype,
                                const Tensor& like) {
  if (sizes.size() <= kMaxRank) return empty_like_device(sizes, dtype, like);
  return torch::stable::new_empty(like, sizes, scalar_type_of(dtype));
}

}  // namespace syncfree::ops
