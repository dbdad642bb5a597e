// Merges dimensions into fewer, longer ones where the layouts of both operands allow it.
#pragma once

#include "core/tensor_view.h"

namespace syncfree {

// Merges neighboring dimensions within [begin, end) that both views traverse with one stride, and
// drops those of size one. The logical order stays. Returns the new end; later dimensions move up.
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
