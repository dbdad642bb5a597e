// Fewer, longer dimensions where the layout of both operands allows it.
#pragma once

#include "core/tensor_view.h"

namespace syncfree {

// Merges neighbours within [begin, end) that both views walk with one stride, and drops sizes of
// one. Logical order stays. Returns the new end; dimensions behind it move up.
template <class View>
int merge_dims(View& a, View& b, int begin, int end) {
  int last = begin - 1;
  for (int i = begin; i < end; ++i) {
    if (a.size[i] == 1) continue;
    const bool joins = last >= begin && a.stride[last] == a.stride[i] * a.size[i] &&
                       b.stride[last] == b.stride[i] * b.size[i];
    if (joins) {
      a.size[last] *= a.size[i];
      b.size[last] = a.size[last];
    } else {
      ++last;
      a.size[last] = b.size[last] = a.size[i];
    }
    a.stride[last] = a.stride[i];
    b.stride[last] = b.stride[i];
  }
  const int new_end = last + 1;
  const int moved = end - new_end;
  for (int i = end; i < a.rank; ++i) {
    a.size[i - moved] = a.size[i];
    b.size[i - moved] = b.size[i];
    a.stride[i - moved] = a.stride[i];
    b.stride[i - moved] = b.stride[i];
  }
  a.rank -= moved;
  b.rank -= moved;
  return new_end;
}

}  // namespace syncfree
