// A problem with its dimensions merged: results x reduced elements.
#pragma once

#include <cstdint>

#include "core/merge_dims.h"
#include "core/tensor_view.h"
#include "psnr/psnr.h"

namespace syncfree::psnr {

struct Operands {
  TensorView preds;
  TensorView target;
  int kept;  // leading dimensions of the views that index results
  std::int64_t results;
  std::int64_t reduced;
  bool contiguous;  // the elements of one result follow each other in both
};

inline Operands make_operands(const Problem& problem) {
  Operands o{problem.preds, problem.target, problem.kept, 1, 1, false};
  merge_dims(o.preds, o.target, o.kept, o.preds.rank);
  o.kept = merge_dims(o.preds, o.target, 0, o.kept);
  for (int i = 0; i < o.preds.rank; ++i) (i < o.kept ? o.results : o.reduced) *= o.preds.size[i];
  const int inner = o.preds.rank - 1;
  o.contiguous =
      o.preds.rank == o.kept ||
      (o.preds.rank == o.kept + 1 && o.preds.stride[inner] == 1 && o.target.stride[inner] == 1);
  return o;
}

}  // namespace syncfree::psnr
