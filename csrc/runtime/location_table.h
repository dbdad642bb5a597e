// The line of an instruction, from the location table that code objects have since CPython 3.11.
//
// Format: Objects/locations.md of CPython. An entry's first byte has its top bit set, four bits of
// code and three of length; line deltas are zigzag numbers in chunks of six bits.
#pragma once

#include <cstddef>

namespace syncfree::runtime {

// The line of code unit `unit`; if its entry has none, the last line before it that is known.
inline int line_at(const unsigned char* table, std::size_t size, int first_line,
                   std::ptrdiff_t unit) {
  enum Code { kOneLine = 10, kNoColumns = 13, kLong = 14, kNone = 15 };
  int line = first_line;
  std::ptrdiff_t end = 0;
  for (std::size_t i = 0; i < size;) {
    const int code = table[i] >> 3 & 15;
    end += (table[i] & 7) + 1;
    ++i;
    if (code == kLong || code == kNoColumns) {
      unsigned int delta = 0;
      for (int shift = 0; i < size; shift += 6) {
        delta |= static_cast<unsigned int>(table[i] & 63) << shift;
        if ((table[i++] & 64) == 0) break;
      }
      line += delta & 1 ? -static_cast<int>(delta >> 1) : static_cast<int>(delta >> 1);
    } else if (code >= kOneLine && code < kNoColumns) {
      line += code - kOneLine;
    }
    if (unit < end) return line;
    while (i < size && table[i] < 128) ++i;  // columns
  }
  return line;
}

}  // namespace syncfree::runtime
