// Stands in for libcupti and libcuda: a test makes the calls that a driver would tell of.
//
// Ids are other than those of any release, so that nothing can rely on numbers.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

// Of count_allocations.cpp, if that is preloaded.
extern "C" __attribute__((weak)) void count_allocations(bool on);

namespace {

struct CallbackData {
  int site;
  const char* function_name;
  const void* params;
  void* result;
  const char* symbol;
  void* context;
  std::uint32_t context_uid;
  std::uint64_t* correlation_data;
  std::uint32_t correlation_id;
};

using Callback = void (*)(void*, int, std::uint32_t, const void*);

const char* const kNames[3][64] = {
    {},
    {"INVALID",
     "cuStreamSynchronize_ptsz",
     "cuStreamSynchronize",
     "cuCtxSynchronize_v2",
     "cuEventSynchronize",
     "cuMemcpyDtoH_v2",
     "cuMemcpyHtoD_v2_ptds",
     "cuMemcpy2D_v2",
     "cuMemcpy3D_v2",
     "cuMemcpy",
     "cuMemcpyDtoD_v2",
     "cuMemcpyPeer",
     "cuMemcpyDtoHAsync_v2",
     "cuMemcpyHtoDAsync_v2",
     "cuMemcpyAsync",
     "cuMemcpy2DAsync_v2",
     "cuMemcpyBatchAsync_v2",
     "cuMemFree_v2",
     "cuMemFreeHost",
     "cuMemHostAlloc",
     "cuMemHostRegister_v2",
     "cuMemHostUnregister",
     "cuMemAlloc_v2",
     "cuModuleLoadData",
     "cuMemsetD32_v2",
     "cuEventQuery",
     "cuStreamQuery",
     "cuLaunchKernel",
     "cuEventRecord",
     "cuStreamWaitEvent",
     "cuLaunchHostFunc",
     "cuMemcpyDtoH",
     "cuMemcpyAtoH_v2",
     "cuGraphInstantiateWithParams"},
    {"INVALID", "cudaStreamSynchronize_v3020", "cudaMemcpyAsync_v3020", "cudaMemcpy_v3020",
     "cudaFree_v3020", "cudaDeviceSynchronize_v3020", "cudaLaunchKernel_v7000"},
};

struct Range {
  std::uint64_t size;
  std::uint64_t type;
  bool managed;
};

struct State {
  Callback callback = nullptr;
  void* user = nullptr;
  bool enabled[3][64] = {};
  int result = 0, result_v2 = 0, subscriptions = 0;
  char holder[64] = "";
  std::map<std::uint64_t, Range> memory;
  std::vector<std::pair<std::uint32_t*, std::uint32_t>> marks;
  int capturing = 0;
  int context = 1;
  std::atomic<int> driver_calls_inside = 0;  // of callbacks, where there must be none
} state;

thread_local bool is_inside = false;

void driver_is_called() {
  if (is_inside) ++state.driver_calls_inside;
}

int find(int domain, const char* name) {
  for (int i = 0; kNames[domain][i] != nullptr; ++i)
    if (std::strcmp(kNames[domain][i], name) == 0) return i;
  return -1;
}

void tell(int site, int domain, int id, const void* params, int* result) {
  if (id < 0 || !state.enabled[domain][id] || state.callback == nullptr) return;
  std::uint64_t correlation = 0;
  const CallbackData data{site, kNames[domain][id], params, result, nullptr, &state.context,
                          1,    &correlation,       0};
  is_inside = true;
  if (count_allocations != nullptr) count_allocations(true);
  state.callback(state.user, domain, id, &data);
  if (count_allocations != nullptr) count_allocations(false);
  is_inside = false;
}

void reach() {
  for (auto& [word, value] : state.marks) *word = value;
  state.marks.clear();
}

void call(const char* runtime, const char* driver, const void* params, int result, long long ns,
          int reaches) {
  const int outer = runtime == nullptr ? -1 : find(2, runtime), inner = find(1, driver);
  tell(0, 2, outer, nullptr, nullptr);
  tell(0, 1, inner, params, nullptr);
  if (ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  if (reaches != 0) reach();
  tell(1, 1, inner, params, &result);
  tell(1, 2, outer, nullptr, &result);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

struct SubscriberParams {
  std::size_t size;
  const char* name;
  char* old_name;
  std::size_t old_size;
};

EXPORT int cuptiGetCallbackName(int domain, std::uint32_t id, const char** name) {
  if (domain < 1 || domain > 2 || id >= 64 || kNames[domain][id] == nullptr) return 1;
  *name = kNames[domain][id];
  return 0;
}

EXPORT int cuptiGetResultString(int result, const char** text) {
  *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_OTHER";
  return 0;
}

EXPORT int cuptiSubscribe(void** subscriber, Callback callback, void* user) {
  if (state.result != 0) return state.result;
  if (state.callback != nullptr) return 39;
  *subscriber = &state;
  state.callback = callback;
  state.user = user;
  ++state.subscriptions;
  return 0;
}

EXPORT int cuptiSubscribe_v2(void** subscriber, Callback callback, void* user,
                             SubscriberParams* params) {
  if (params->size != sizeof(SubscriberParams)) return 1;
  if (state.result_v2 == 39) std::snprintf(params->old_name, params->old_size, "%s", state.holder);
  if (state.result_v2 != 0) return state.result_v2;
  return cuptiSubscribe(subscriber, callback, user);
}

EXPORT int cuptiUnsubscribe(void* subscriber) {
  if (subscriber != &state) return 1;
  state.callback = nullptr;
  std::memset(state.enabled, 0, sizeof(state.enabled));
  return 0;
}

EXPORT int cuptiEnableCallback(std::uint32_t on, void* subscriber, int domain, std::uint32_t id) {
  if (subscriber != &state) return 1;
  state.enabled[domain][id] = on != 0;
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(void*) {
  driver_is_called();
  call(nullptr, "cuCtxSynchronize_v2", nullptr, 0, 0, 0);  // the library's own: not to be seen
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void**) {
  driver_is_called();
  return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int*) {
  driver_is_called();
  return 0;
}
EXPORT int cuCtxGetCurrent(void** context) {
  driver_is_called();
  *context = &state.context;
  return 0;
}

EXPORT int cuPointerGetAttributes(unsigned int count, const int* attributes, void** data,
                                  std::uint64_t address) {
  driver_is_called();
  auto place = state.memory.upper_bound(address);
  const bool known =
      place != state.memory.begin() && address < (--place)->first + place->second.size;
  for (unsigned int i = 0; i < count; ++i) {
    if (attributes[i] == 2) *static_cast<std::uint32_t*>(data[i]) = known ? place->second.type : 0;
    if (attributes[i] == 8) *static_cast<std::uint32_t*>(data[i]) = known && place->second.managed;
    if (attributes[i] == 11) *static_cast<std::uint64_t*>(data[i]) = known ? place->first : 0;
    if (attributes[i] == 12) *static_cast<std::uint64_t*>(data[i]) = known ? place->second.size : 0;
  }
  return 0;
}

EXPORT int cuStreamIsCapturing(void*, int* capturing) {
  driver_is_called();
  *capturing = state.capturing;
  return 0;
}

EXPORT int cuStreamWriteValue32_v2(void*, std::uint64_t address, std::uint32_t value,
                                   unsigned int) {
  driver_is_called();
  state.marks.emplace_back(reinterpret_cast<std::uint32_t*>(address), value);
  return 0;
}

EXPORT void fake_reset() {
  state.result = state.result_v2 = state.capturing = state.subscriptions = 0;
  state.memory.clear();
  reach();  // a mark that is never reached would be pending for all tests behind this one
}
EXPORT void fake_refuse(int v1, int v2, const char* holder) {
  state.result = v1;
  state.result_v2 = v2;
  std::snprintf(state.holder, sizeof(state.holder), "%s", holder);
}
EXPORT void fake_memory(std::uint64_t begin, std::uint64_t size, int type, int managed) {
  state.memory[begin] = {size, static_cast<std::uint64_t>(type), managed != 0};
}
EXPORT void fake_capture(int on) {
  state.capturing = on;
}
EXPORT void fake_reach() {
  reach();
}
EXPORT int fake_is_subscribed() {
  return state.callback != nullptr;
}
EXPORT int fake_driver_calls_inside() {
  return state.driver_calls_inside;
}
EXPORT int fake_subscriptions() {
  return state.subscriptions;
}
EXPORT int fake_is_enabled(const char* name) {
  const int domain = std::strncmp(name, "cuda", 4) == 0 ? 2 : 1;
  const int id = find(domain, name);
  return id >= 0 && state.enabled[domain][id];
}

// One call of the driver, through a function of the runtime unless `runtime` is empty.
EXPORT void fake_call(const char* runtime, const char* driver, const void* params, int result,
                      long long ns, int reaches) {
  call(*runtime == '\0' ? nullptr : runtime, driver, params, result, ns, reaches);
}

// Only one half of a call.
EXPORT void fake_half(int site, const char* driver, const void* params, int result) {
  tell(site, 1, find(1, driver), params, &result);
}

// Calls one after the other; with `threads` above 0 in that many threads of its own, named `name`.
EXPORT void fake_many(const char* driver, const void* params, int result, int calls, int threads,
                      const char* name) {
  const auto work = [=] {
    for (int i = 0; i < calls; ++i) call(nullptr, driver, params, result, 0, 0);
  };
  if (threads == 0) return work();
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([=] {
      if (*name != '\0') pthread_setname_np(pthread_self(), name);
      work();
    });
  }
  for (std::thread& each : all) each.join();
}

// What torch's autograd does in a thread without Python: a node runs, with an operator in it, which
// calls the driver. `listener` is an OpListener of csrc/runtime/op_listener.h.
struct OpListener {
  void (*begin)(const void* id, const char* name, bool is_node, std::int64_t sequence,
                std::uint64_t thread);
  void (*end)(const void* id, std::uint64_t thread, std::uint64_t sequence);
};

EXPORT void fake_backward(const OpListener* listener, std::int64_t sequence, std::uint64_t forward,
                          const char* driver, const void* params) {
  std::thread([=] {
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    const char node = 0, op = 0;
    listener->begin(&node, "MulBackward0", true, sequence, forward);
    listener->begin(&op, "aten::mul", false, -1, 0);
    call(nullptr, driver, params, 0, 0, 0);
    listener->end(&op, 2, 0);
    listener->end(&node, 2, 0);
  }).join();
}

// A node of autograd makes another one, numbered `made` of thread `maker`: create_graph=True.
EXPORT void fake_node_in_node(const OpListener* listener, std::int64_t sequence,
                              std::uint64_t forward, std::int64_t made, std::uint64_t maker) {
  std::thread([=] {
    const char node = 0, op = 0;
    listener->begin(&node, "MulBackward0", true, sequence, forward);
    listener->begin(&op, "aten::mul", false, made, 0);
    listener->end(&op, maker, static_cast<std::uint64_t>(made) + 1);
    listener->end(&node, maker, static_cast<std::uint64_t>(made) + 1);
  }).join();
}

// Operators one after the other, each of which makes a node.
EXPORT void fake_operators(const OpListener* listener, std::int64_t from, std::int64_t count,
                           std::uint64_t thread) {
  for (std::int64_t i = from; i < from + count; ++i) {
    listener->begin(&i, "aten::mul", false, i, 0);
    listener->end(&i, thread, static_cast<std::uint64_t>(i) + 1);
  }
}
