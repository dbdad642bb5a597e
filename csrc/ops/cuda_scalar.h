// Results of one number, which a small kernel's caller gets back at each step.
#pragma once

#include "ops/torch_abi.h"

namespace syncfree::ops {

// Where a scalar comes from, as it travels in the options of an op. Not the pool where torch keeps
// account of the memory of an op, as while it warms up a graph; and a tensor made in inference mode
// is not the same as another.
enum class ScalarPool : int { kNone = 0, kUsual = 1, kInference = 2 };

// An uninitialised float32 scalar on the device of `like`, for the current stream.
//
// The least that torch's allocator gives out are 512 bytes, which takes 1.5 us. 128 scalars lie in
// such a block here, which lives as long as any of them does.
Tensor cuda_scalar(const Tensor& like, ScalarPool pool);

}  // namespace syncfree::ops
