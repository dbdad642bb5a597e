// The Python objects Region and RegionTimer, written with CPython's own C API: their calls stand
// around every region, and what they cost is added to it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

#include "runtime/region_timer.h"
#include "runtime/timer_types.h"

namespace syncfree::runtime {

inline constexpr int kKinds = 3;
inline constexpr std::size_t kNamesAtHand = 8;  // a power of two

// As torch's C interface has them: 0 is success.
using CurrentDevice = std::int32_t (*)(std::int32_t* device);
using CurrentStream = std::int32_t (*)(std::int32_t device, void** stream);

// A recently used name, found by its address: a loop passes the same objects over and over.
struct NameAtHand {
  PyObject* name;
  RegionHistory* history;
};

struct TimerObject {
  PyObject ob_base;
  RegionTimer* timer;
  bool has_gpu;
  int device;                // the only one, if not negative
  PyObject* current_device;  // () -> int; null with one device, and without a GPU
  PyObject* current_stream;  // (int) -> int, the driver's handle; null without a GPU
  // C functions that do the same; may be null.
  CurrentDevice device_function;
  CurrentStream stream_function;
  PyObject* push_range;  // NVTX; null without
  PyObject* pop_range;
  PyObject* names[kKinds];  // str -> address of its RegionHistory
  NameAtHand at_hand[kKinds][kNamesAtHand];
};

struct RegionObject {
  PyObject ob_base;
  TimerObject* owner;
  PyObject* name;
  RegionHistory* history;
  RegionSlot* slot;  // null if closed, or if this one cannot be timed
  std::int64_t bytes;
  bool is_open;
};

// Interned.
inline PyObject* kind_names[kKinds] = {};

class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  // At the interpreter's end PyEval_RestoreThread unwinds a daemon thread, which must not pass
  // through a noexcept destructor.
  ~WithoutGil() noexcept(false) { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

// A full queue of the GPU makes the driver wait, and the work ahead may need the GIL to finish.
template <typename Function>
void without_gil(Function function) {
  const WithoutGil released;
  function();
}

// The result of `function`, or null with Python's error set.
template <typename Function>
PyObject* guarded(Function function) {
  try {
    return function();
  } catch (const cuda::Error& error) {
    set_timer_error(error.what());
  } catch (const TimerLimit& error) {
    set_timer_error(error.what());
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <typename Function>
PyCFunction method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

// Reads a number of bytes, or None as -1. Returns false with Python's error set for anything else.
bool read_bytes(PyObject* value, std::int64_t& bytes);

// A new region that is not open yet. It keeps its timer alive.
PyObject* new_region(TimerObject* owner, PyObject* name, RegionHistory* history,
                     std::int64_t bytes);

pybind11::object make_region_type();
pybind11::object make_timer_type();

}  // namespace syncfree::runtime
