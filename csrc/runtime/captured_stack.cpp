#include "runtime/captured_stack.h"

#include <algorithm>
#include <cstring>

namespace syncfree::runtime {
namespace {

std::uint32_t code_point(const PythonText& text, std::size_t index) {
  const auto* bytes = static_cast<const unsigned char*>(text.data) + index * text.width;
  if (text.width == 1) return bytes[0];
  if (text.width == 2) {
    std::uint16_t unit;
    std::memcpy(&unit, bytes, sizeof(unit));
    return unit;
  }
  std::uint32_t unit;
  std::memcpy(&unit, bytes, sizeof(unit));
  return unit;
}

std::size_t utf8_size(std::uint32_t point) {
  return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

void put_utf8(std::uint32_t point, std::size_t size, char* out) {
  constexpr unsigned char kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (std::size_t i = size; i > 1; --i, point >>= 6)
    out[i - 1] = static_cast<char>(0x80 | (point & 0x3f));
  out[0] = static_cast<char>(kLead[size] | point);
}

template <std::size_t kCapacity>
void copy(const PythonText& text, ShortText<kCapacity>& out) {
  if (text.is_ascii) {
    out.size = std::min(text.length, kCapacity);
    std::memcpy(out.bytes, static_cast<const char*>(text.data) + text.length - out.size, out.size);
    return;
  }
  std::size_t begin = text.length, size = 0;
  while (begin > 0) {
    const std::size_t more = utf8_size(code_point(text, begin - 1));
    if (size + more > kCapacity) break;
    size += more;
    --begin;
  }
  out.size = 0;
  for (std::size_t i = begin; i < text.length; ++i) {
    const std::uint32_t point = code_point(text, i);
    const std::size_t bytes = utf8_size(point);
    put_utf8(point, bytes, out.bytes + out.size);
    out.size += bytes;
  }
}

}  // namespace

void copy(const PythonFrame& frame, CapturedFrame& out) {
  copy(frame.file(), out.file);
  copy(frame.function(), out.function);
  out.line = frame.line();
}

std::size_t capture_python_stack(CapturedFrame* frames, std::size_t most) {
  const auto visit = [](void* context, const PythonFrame& frame) {
    copy(frame, *(*static_cast<CapturedFrame**>(context))++);
    return true;
  };
  return walk_python_stack(visit, &frames, most);
}

}  // namespace syncfree::runtime
