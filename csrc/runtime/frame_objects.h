// Captured frames and names as Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/captured_stack.h"

namespace syncfree::runtime {

// `errors` as in bytes.decode: what to do with bytes that are not UTF-8, or were cut off.
template <std::size_t kCapacity>
pybind11::str as_text(const ShortText<kCapacity>& text, const char* errors = "surrogateescape") {
  return pybind11::reinterpret_steal<pybind11::str>(
      PyUnicode_DecodeUTF8(text.bytes, static_cast<Py_ssize_t>(text.size), errors));
}

// (file, line, function)
inline pybind11::tuple as_tuple(const CapturedFrame& frame) {
  return pybind11::make_tuple(as_text(frame.file), frame.line, as_text(frame.function));
}

}  // namespace syncfree::runtime
