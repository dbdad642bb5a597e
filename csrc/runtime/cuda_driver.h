// The CUDA driver, loaded when it is first needed: this module is built and imported without CUDA.
//
// Only what timers, stamps and probes call is declared. Handles are the driver's own: a stream of
// torch, cudaStream_t, is a Stream here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace syncfree::runtime::cuda {

using Result = int;
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using DevicePointer = unsigned long long;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidHandle = 400;  // also: an event that was never recorded
inline constexpr Result kNotReady = 600;
inline constexpr Result kCaptureImplicit = 906;  // legacy stream, while another one is captured

inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr unsigned int kRecordExternal = 1;
inline constexpr unsigned int kStreamNonBlocking = 1;
inline constexpr unsigned int kHostPortableMapped = 3;

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The functions of one driver library, by their exported names.
struct Driver {
  Result (*init)(unsigned int);
  Result (*get_error_name)(Result, const char**);
  Result (*get_error_string)(Result, const char**);
  Result (*device_get_count)(int*);
  Result (*device_get)(int*, int);
  Result (*device_get_name)(char*, int, int);
  Result (*primary_context_retain)(Context*, int);
  Result (*context_get_current)(Context*);
  Result (*context_push)(Context);
  Result (*context_pop)(Context*);
  Result (*stream_create)(Stream*, unsigned int);
  Result (*stream_is_capturing)(Stream, int*);
  Result (*exchange_capture_mode)(int*);
  Result (*event_create)(Event*, unsigned int);
  Result (*event_record)(Event, Stream);
  Result (*event_record_with_flags)(Event, Stream, unsigned int);
  Result (*event_query)(Event);
  Result (*event_synchronize)(Event);
  Result (*event_elapsed)(float*, Event, Event);  // called by `elapsed`
  Result (*module_load)(Module*, const void*);
  Result (*module_get_function)(Function*, Module, const char*);
  Result (*launch)(Function, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                   unsigned int, unsigned int, Stream, void**, void**);
  Result (*host_alloc)(void**, std::size_t, unsigned int);
  Result (*host_device_pointer)(DevicePointer*, void*, unsigned int);

  // Milliseconds; kNotReady instead of waiting. The first version of the driver's function asks the
  // GPU about both events each time, 4.5 us for the two calls of a region (H200, driver 580). The
  // second, since driver 570, only computes, and leaves asking to queries.
  Result elapsed(float* milliseconds, Event from, Event to) const {
    const Result result = event_elapsed(milliseconds, from, to);
    if (result != kNotReady) [[likely]]
      return result;
    for (Event each : {to, from})
      if (const Result state = event_query(each); state != kSuccess) return state;
    return event_elapsed(milliseconds, from, to);
  }

  // Throws Error, with the call's name and the driver's message, unless `result` is kSuccess.
  void check(Result result, const char* call) const {
    if (result != kSuccess) [[unlikely]]
      throw Error(describe(result, call));
  }
  std::string describe(Result result, const char* call) const;
};

// Why no driver can be used here; empty if one can.
std::string status();

// The initialized driver; throws Error with the status if there is none. The environment variable
// SYNCFREE_LIBCUDA names another library than libcuda.so.1; each library's table is never freed.
const Driver& driver();

// While an object lives, this thread may make calls that would otherwise be forbidden while a graph
// is being captured somewhere, and they do not invalidate the capture. The calls themselves must
// have nothing to do with it.
class DuringCaptures {
 public:
  explicit DuringCaptures(const Driver& driver) : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  ~DuringCaptures() { driver_.exchange_capture_mode(&mode_); }
  DuringCaptures(const DuringCaptures&) = delete;
  DuringCaptures& operator=(const DuringCaptures&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
};

// Makes a context current while the object lives; costs one look-up if it already is.
class InContext {
 public:
  InContext(const Driver& driver, Context context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// The current context of this thread; throws Error if there is none.
Context current_context(const Driver& driver);

}  // namespace syncfree::runtime::cuda
