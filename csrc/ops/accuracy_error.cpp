// The mark of a call in the error message about its bad labels.
#include "ops/accuracy_error.h"

#include <sstream>

namespace syncfree::ops {

std::string origin_mark(const ErrorOrigin& origin) {
  if (origin.slot == 0 && origin.call == 0) return {};
  std::ostringstream mark;
  mark << " [syncfree metric " << origin.slot << ", call " << origin.call << ']';
  return mark.str();
}

}  // namespace syncfree::ops
