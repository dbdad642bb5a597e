// The shape in which the kernels of SSIM take images, (B, C, D, H, W).
#pragma once

#include "core/tensor_view.h"

namespace syncfree::ssim {

// Gives 2-D images, (B, C, H, W), a depth of one.
inline TensorView volume_view(TensorView view) {
  if (view.rank == 5) return view;
  for (int d = 4; d > 2; --d) {
    view.size[d] = view.size[d - 1];
    view.stride[d] = view.stride[d - 1];
  }
  view.size[2] = 1;
  view.stride[2] = 0;
  view.rank = 5;
  return view;
}

}  // namespace syncfree::ssim
