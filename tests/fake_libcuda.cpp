// A CUDA driver without a GPU, for tests: time passes only when a test says so.
//
// A stream is a moment until which it is busy; work and spins push that moment on. An event that is
// recorded is complete once the fake's clock has reached the moment its stream had then. Tests
// reach the functions named fake_* through ctypes. Not thread-safe.
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

using Result = int;

namespace {

constexpr Result kInvalidValue = 1, kInvalidHandle = 400, kNotReady = 600;
constexpr Result kCaptureImplicit = 906, kCapturedEvent = 907, kStickyError = 719;

struct Event {
  bool recorded = false;
  bool captured = false;
  std::int64_t at = 0;
  void* on = nullptr;
};

struct Stream {
  std::int64_t busy_until = 0;
  std::int64_t seen = 0;  // how far a query has found it
  bool capturing = false;
  struct Node {
    Event* event;  // null: work
    std::int64_t work;
  };
  std::vector<Node> graph;
};

struct PendingStamp {
  std::int64_t at;
  char* memory;
  std::uint32_t serial;
};

std::int64_t now = 1'000'000'000;
std::map<void*, Stream> streams;
std::deque<Event> events;
std::deque<PendingStamp> stamps;
std::map<std::string, long> calls;
std::deque<std::vector<char>> host_memory;
std::int64_t record_on_gpu = 0, record_on_host = 0;  // nanoseconds that a record takes
std::int32_t device_failure = 0;
double mhz = 1980;
std::uint32_t sm = 7;
Result sticky = 0;
Result init_result = 0;
Result compiler_result = 0;
Result event_result = 0;
int devices = 1;
thread_local void* context = reinterpret_cast<void*>(0x100);
thread_local std::vector<void*> below;  // the current context
thread_local int capture_mode = 0;
long unsafe_calls_in_capture = 0;

Stream& stream(void* handle) {
  return streams[handle];
}

bool any_capture() {
  for (auto& [_, each] : streams)
    if (each.capturing) return true;
  return false;
}

// As the driver: while something is captured, these must not be called in another mode.
void unsafe() {
  if (any_capture() && capture_mode != 2) ++unsafe_calls_in_capture;
}

std::int64_t moment(Stream& of) {
  return of.busy_until > now ? of.busy_until : now;
}

void deliver_stamps() {
  for (auto stamp = stamps.begin(); stamp != stamps.end();) {
    if (stamp->at > now) {
      ++stamp;
      continue;
    }
    const auto cycles = static_cast<std::uint64_t>(static_cast<double>(stamp->at) * mhz / 1e3);
    const auto time = static_cast<std::uint64_t>(stamp->at);
    std::memcpy(stamp->memory, &time, 8);
    std::memcpy(stamp->memory + 8, &cycles, 8);
    std::memcpy(stamp->memory + 16, &sm, 4);
    std::memcpy(stamp->memory + 20, &stamp->serial, 4);
    stamp = stamps.erase(stamp);
  }
}

Result state_of(Event* event) {
  if (sticky) return sticky;
  if (event->captured) return kCapturedEvent;
  if (!event->recorded) return 0;
  return event->at <= now ? 0 : kNotReady;
}

}  // namespace

extern "C" {

// ---- For tests.

void fake_reset() {
  streams.clear();
  stamps.clear();
  calls.clear();
  mhz = 1980;
  record_on_gpu = record_on_host = 0;
  device_failure = 0;
  sm = 7;
  sticky = init_result = compiler_result = event_result = 0;
  devices = 1;
  unsafe_calls_in_capture = 0;
  context = reinterpret_cast<void*>(0x100);
}
void fake_pass(std::int64_t ns) {
  now += ns;
  deliver_stamps();
}
void fake_work(std::uint64_t handle, std::int64_t ns) {
  Stream& on = stream(reinterpret_cast<void*>(handle));
  if (on.capturing)
    on.graph.push_back({nullptr, ns});
  else
    on.busy_until = moment(on) + ns;
}
std::int64_t fake_busy_until(std::uint64_t handle) {
  return stream(reinterpret_cast<void*>(handle)).busy_until;
}
std::int64_t fake_now() {
  return now;
}
long fake_calls(const char* name) {
  return calls[name];
}
long fake_unsafe_calls() {
  return unsafe_calls_in_capture;
}
long fake_events() {
  return static_cast<long>(events.size());
}
void fake_set_clock(double to, std::uint32_t on_sm) {
  mhz = to;
  sm = on_sm;
}
void fake_fail(Result with) {
  sticky = with;
}
void fake_break_compiler() {
  compiler_result = 221;
}
void fake_break_events(bool broken) {  // that are made from now on
  event_result = broken ? 2 : 0;
}
void fake_set_init(Result with, int count) {
  init_result = with;
  devices = count;
}
void fake_set_context(std::uint64_t to) {
  context = reinterpret_cast<void*>(to);
}
std::uint64_t fake_context() {
  return reinterpret_cast<std::uint64_t>(context);
}
void fake_set_costs(std::int64_t gpu, std::int64_t host) {
  record_on_gpu = gpu;
  record_on_host = host;
}
std::int32_t fake_device(std::int32_t* out) {
  ++calls[__func__];
  if (device_failure) return device_failure;
  *out = 1;
  return 0;
}
void fake_break_device() {
  device_failure = 1;
}
std::int32_t fake_stream_of(std::int32_t device, void** out) {
  ++calls[__func__];
  if (device == 2) return 1;
  *out = reinterpret_cast<void*>(0x900 + static_cast<std::uint64_t>(device));
  return 0;
}
void fake_begin_capture(std::uint64_t handle) {
  Stream& on = stream(reinterpret_cast<void*>(handle));
  on.capturing = true;
  on.graph.clear();
}
void fake_end_capture(std::uint64_t handle) {
  stream(reinterpret_cast<void*>(handle)).capturing = false;
}
void fake_replay(std::uint64_t captured_on, std::uint64_t handle) {
  Stream& on = stream(reinterpret_cast<void*>(handle));
  for (const Stream::Node& node : stream(reinterpret_cast<void*>(captured_on)).graph) {
    if (node.event == nullptr) {
      on.busy_until = moment(on) + node.work;
    } else {
      node.event->recorded = true;
      node.event->at = moment(on);
    }
  }
}

// ---- The driver.

#define COUNT() ++calls[__func__]

Result cuInit(unsigned int) {
  COUNT();
  return init_result;
}
Result cuGetErrorName(Result error, const char** text) {
  *text = error == 100            ? "CUDA_ERROR_NO_DEVICE"
          : error == kStickyError ? "CUDA_ERROR_LAUNCH_FAILED"
                                  : "CUDA_ERROR_FAKE";
  return 0;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "an error of the fake driver";
  return 0;
}
Result cuDeviceGetCount(int* count) {
  *count = devices;
  return 0;
}
Result cuDeviceGet(int* device, int ordinal) {
  if (ordinal >= 4) return 101;
  *device = ordinal;
  return 0;
}
Result cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, device == 0 ? "a GPU of the tests" : "another one", size - 1);
  name[size - 1] = '\0';
  return 0;
}
Result cuDevicePrimaryCtxRetain(void** out, int device) {
  COUNT();
  *out = reinterpret_cast<void*>(0x100 + 0x100 * static_cast<std::uint64_t>(device));
  return 0;
}
Result cuCtxGetCurrent(void** out) {
  COUNT();
  *out = context;
  return 0;
}
Result cuCtxPushCurrent_v2(void* to) {
  COUNT();
  below.push_back(context);
  context = to;
  return 0;
}
Result cuCtxPopCurrent_v2(void** out) {
  COUNT();
  if (below.empty()) return 201;
  *out = context;
  context = below.back();
  below.pop_back();
  return 0;
}
Result cuStreamCreate(void** out, unsigned int) {
  COUNT();
  unsafe();
  static std::uint64_t last = 0x1000;
  *out = reinterpret_cast<void*>(++last);
  return 0;
}
Result cuStreamIsCapturing(void* handle, int* status) {
  COUNT();
  if (handle == nullptr && any_capture()) return kCaptureImplicit;
  *status = stream(handle).capturing ? 1 : 0;
  return sticky;
}
Result cuThreadExchangeStreamCaptureMode(int* mode) {
  COUNT();
  const int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}
Result cuEventCreate(void** out, unsigned int) {
  COUNT();
  unsafe();
  if (event_result) return event_result;
  *out = &events.emplace_back();
  return sticky;
}
Result cuEventRecord(void* handle, void* on) {
  COUNT();
  if (sticky) return sticky;
  auto* event = static_cast<Event*>(handle);
  Stream& of = stream(on);
  event->captured = of.capturing;
  event->recorded = true;
  of.busy_until = moment(of) + record_on_gpu;
  event->at = of.busy_until;
  event->on = on;
  fake_pass(record_on_host);
  return 0;
}
Result cuEventRecordWithFlags(void* handle, void* on, unsigned int flags) {
  COUNT();
  if (flags == 0) return cuEventRecord(handle, on);
  if (!stream(on).capturing) return kInvalidValue;
  stream(on).graph.push_back({static_cast<Event*>(handle), 0});
  return sticky;
}
Result cuEventQuery(void* handle) {
  COUNT();
  unsafe();
  auto* event = static_cast<Event*>(handle);
  const Result state = state_of(event);
  std::int64_t& seen = stream(event->on).seen;
  if (state == 0 && event->at > seen) seen = event->at;
  return state;
}
Result cuEventSynchronize(void* handle) {
  COUNT();
  auto* event = static_cast<Event*>(handle);
  if (event->at > now) fake_pass(event->at - now);
  return sticky;
}
#ifdef BEFORE_DRIVER_570
Result cuEventElapsedTime(float* out, void* from, void* to) {
#else
Result cuEventElapsedTime_v2(float* out, void* from, void* to) {
#endif
  COUNT();
  auto *first = static_cast<Event*>(from), *second = static_cast<Event*>(to);
  for (Event* each : {first, second})
    if (const Result state = state_of(each)) return state;
#ifndef BEFORE_DRIVER_570
  for (Event* each : {first, second})
    if (each->recorded && each->at > stream(each->on).seen)
      return kNotReady;  // until it is queried
#endif
  if (!first->recorded || !second->recorded) return kInvalidHandle;
  *out = static_cast<float>(static_cast<double>(second->at - first->at) / 1e6);
  return 0;
}
Result cuModuleLoadData(void** out, const void* image) {
  COUNT();
  unsafe();
  if (compiler_result) return compiler_result;
  *out = const_cast<void*>(image);
  return std::strstr(static_cast<const char*>(image), ".target") ? 0 : 200;
}
Result cuModuleGetFunction(void** out, void*, const char* name) {
  *out = std::strcmp(name, "syncfree_spin") == 0    ? reinterpret_cast<void*>(1)
         : std::strcmp(name, "syncfree_stamp") == 0 ? reinterpret_cast<void*>(2)
                                                    : nullptr;
  return *out == nullptr ? 500 : 0;
}
Result cuLaunchKernel(void* function, unsigned int, unsigned int, unsigned int, unsigned int,
                      unsigned int, unsigned int, unsigned int, void* on, void** arguments,
                      void**) {
  COUNT();
  Stream& of = stream(on);
  if (of.capturing) return 900;
  if (function == reinterpret_cast<void*>(1)) {
    of.busy_until =
        moment(of) + static_cast<std::int64_t>(*static_cast<std::uint64_t*>(arguments[0]));
  } else {
    stamps.push_back({moment(of), *static_cast<char**>(arguments[0]),
                      *static_cast<std::uint32_t*>(arguments[1])});
    deliver_stamps();
  }
  return sticky;
}
Result cuMemHostAlloc(void** out, std::size_t size, unsigned int) {
  COUNT();
  unsafe();
  *out = host_memory.emplace_back(size + 64).data();
  *out = reinterpret_cast<void*>((reinterpret_cast<std::uint64_t>(*out) + 63) / 64 * 64);
  return 0;
}
Result cuMemHostGetDevicePointer_v2(unsigned long long* out, void* host, unsigned int) {
  *out = reinterpret_cast<unsigned long long>(host);
  return 0;
}

}  // extern "C"
