#define Py_BUILD_CORE 1  // layouts of frames, the same in all releases of a minor version
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#endif

#include "runtime/location_table.h"
#include "runtime/python_stack.h"

#if PY_VERSION_HEX >= 0x030E0000 || defined(Py_GIL_DISABLED)
#define SYNCFREE_UNKNOWN_FRAMES 1
#endif

namespace syncfree::runtime {
namespace {

#if !defined(SYNCFREE_UNKNOWN_FRAMES)

PythonText text_of(PyObject* string) {
  PythonText text;
  // Names made by the compiler are always compact; anything else is left out.
  if (string == nullptr || !PyUnicode_Check(string) || !PyUnicode_IS_COMPACT(string)) return text;
  text.data = PyUnicode_DATA(string);
  text.length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(string));
  text.width = static_cast<int>(PyUnicode_KIND(string));
  text.is_ascii = PyUnicode_IS_ASCII(string) != 0;
  return text;
}

#if PY_VERSION_HEX >= 0x030B0000

using Frame = _PyInterpreterFrame;

Frame* first_frame(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame;
#else
  return thread->cframe->current_frame;
#endif
}

Frame* caller_of(const Frame* frame) {
  return frame->previous;
}

const _Py_CODEUNIT* instruction_of(const Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return frame->instr_ptr;
#else
  return frame->prev_instr;
#endif
}

// Null for a frame that stands for C code or that has not begun yet.
PyCodeObject* code_of(const Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return nullptr;
#endif
#if PY_VERSION_HEX >= 0x030D0000
  if (!PyCode_Check(frame->f_executable)) return nullptr;
  auto* code = reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  PyCodeObject* code = frame->f_code;
#endif
  const bool begun = frame->owner == FRAME_OWNED_BY_GENERATOR ||
                     instruction_of(frame) >= _PyCode_CODE(code) + code->_co_firsttraceable;
  return begun ? code : nullptr;
}

PyObject* name_of(PyCodeObject* code) {
  return code->co_qualname;
}

// Not PyCode_Addr2Line: it reads an array that another thread may be filling, where a debugger or a
// coverage tool has just been switched on.
int line_of(const Frame* frame, PyCodeObject* code) {
  const std::ptrdiff_t unit = instruction_of(frame) - _PyCode_CODE(code);
  const auto* table = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_linetable));
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(code->co_linetable));
  return line_at(table, size, code->co_firstlineno, unit);
}

int instruction_at(const Frame* frame, PyCodeObject* code) {
  return static_cast<int>(reinterpret_cast<const char*>(instruction_of(frame)) -
                          reinterpret_cast<const char*>(_PyCode_CODE(code)));
}

#else

using Frame = PyFrameObject;

Frame* first_frame(PyThreadState* thread) {
  return thread->frame;
}

Frame* caller_of(const Frame* frame) {
  return frame->f_back;
}

PyCodeObject* code_of(const Frame* frame) {
  return frame->f_code;
}

PyObject* name_of(PyCodeObject* code) {
  return code->co_name;
}

int line_of(const Frame* frame, PyCodeObject* code) {
  return PyCode_Addr2Line(code, frame->f_lasti * 2);  // counted in code units
}

int instruction_at(const Frame* frame, PyCodeObject*) {
  return frame->f_lasti * 2;
}

#endif

#endif  // known frames

}  // namespace

bool can_walk_python_stack() {
#if defined(SYNCFREE_UNKNOWN_FRAMES)
  return false;
#else
  return true;
#endif
}

PythonText PythonFrame::file() const {
#if defined(SYNCFREE_UNKNOWN_FRAMES)
  return {};
#else
  return text_of(static_cast<const PyCodeObject*>(code)->co_filename);
#endif
}

PythonText PythonFrame::function() const {
#if defined(SYNCFREE_UNKNOWN_FRAMES)
  return {};
#else
  return text_of(name_of(static_cast<PyCodeObject*>(const_cast<void*>(code))));
#endif
}

int PythonFrame::line() const {
#if defined(SYNCFREE_UNKNOWN_FRAMES)
  return 0;
#else
  return line_of(static_cast<const Frame*>(frame),
                 static_cast<PyCodeObject*>(const_cast<void*>(code)));
#endif
}

int PythonFrame::instruction() const {
#if defined(SYNCFREE_UNKNOWN_FRAMES)
  return 0;
#else
  return instruction_at(static_cast<const Frame*>(frame),
                        static_cast<PyCodeObject*>(const_cast<void*>(code)));
#endif
}

std::size_t walk_python_stack(bool (*visit)(void* context, const PythonFrame& frame), void* context,
                              std::size_t most) {
  std::size_t visited = 0;
#if !defined(SYNCFREE_UNKNOWN_FRAMES)
  PyThreadState* thread = PyGILState_GetThisThreadState();  // of this thread, with or without GIL
  if (thread == nullptr) return 0;
  for (Frame* frame = first_frame(thread); frame != nullptr && visited < most;
       frame = caller_of(frame)) {
    PyCodeObject* code = code_of(frame);
    if (code == nullptr) continue;
    ++visited;
    if (!visit(context, {frame, code})) break;
  }
#endif
  return visited;
}

}  // namespace syncfree::runtime
