#include "runtime/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/own_call.h"

namespace syncfree::runtime::cuda {
namespace {

struct Loaded {
  Driver driver{};
  std::string problem;
};

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

// Returns the first missing function, or null. The suffix _v2 is the ABI that cuda.h's macros
// choose.
const char* fill(Driver& driver, void* library) {
#define SYNCFREE_FIND(member, name) \
  if (!find(library, name, driver.member)) return name
  SYNCFREE_FIND(init, "cuInit");
  SYNCFREE_FIND(get_error_name, "cuGetErrorName");
  SYNCFREE_FIND(get_error_string, "cuGetErrorString");
  SYNCFREE_FIND(device_get_count, "cuDeviceGetCount");
  SYNCFREE_FIND(device_get, "cuDeviceGet");
  SYNCFREE_FIND(device_get_name, "cuDeviceGetName");
  SYNCFREE_FIND(primary_context_retain, "cuDevicePrimaryCtxRetain");
  SYNCFREE_FIND(context_get_current, "cuCtxGetCurrent");
  SYNCFREE_FIND(context_push, "cuCtxPushCurrent_v2");
  SYNCFREE_FIND(context_pop, "cuCtxPopCurrent_v2");
  SYNCFREE_FIND(stream_create, "cuStreamCreate");
  SYNCFREE_FIND(stream_is_capturing, "cuStreamIsCapturing");
  SYNCFREE_FIND(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  SYNCFREE_FIND(event_create, "cuEventCreate");
  SYNCFREE_FIND(event_record, "cuEventRecord");
  SYNCFREE_FIND(event_record_with_flags, "cuEventRecordWithFlags");
  SYNCFREE_FIND(event_query, "cuEventQuery");
  SYNCFREE_FIND(event_synchronize, "cuEventSynchronize");
  if (!find(library, "cuEventElapsedTime_v2", driver.event_elapsed))
    SYNCFREE_FIND(event_elapsed, "cuEventElapsedTime");
  SYNCFREE_FIND(module_load, "cuModuleLoadData");
  SYNCFREE_FIND(module_get_function, "cuModuleGetFunction");
  SYNCFREE_FIND(launch, "cuLaunchKernel");
  SYNCFREE_FIND(host_alloc, "cuMemHostAlloc");
  SYNCFREE_FIND(host_device_pointer, "cuMemHostGetDevicePointer_v2");
#undef SYNCFREE_FIND
  return nullptr;
}

std::string words(const Driver& driver, Result result) {
  const char *name = nullptr, *text = nullptr;
  driver.get_error_name(result, &name);
  driver.get_error_string(result, &text);
  return std::string(name ? name : "unknown error") + " (" + std::to_string(result) +
         "): " + (text ? text : "no description");
}

void load(Loaded& loaded, const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    loaded.problem =
        "the CUDA driver library does not load: " + std::string(reason ? reason : path);
    return;
  }
  if (const char* missing = fill(loaded.driver, library)) {
    loaded.problem = path + " is too old: it has no function " + missing;
    return;
  }
  const OwnCall own;
  int devices = 0;
  Result result = loaded.driver.init(0);
  if (result != kSuccess) {
    loaded.problem = loaded.driver.describe(result, "cuInit");
  } else if (loaded.driver.device_get_count(&devices) != kSuccess || devices == 0) {
    loaded.problem = "the CUDA driver finds no device";
  }
}

const Loaded& library() {
  // Never freed: Python objects that outlive static destruction hold references.
  static auto& tables = *new std::map<std::string, std::unique_ptr<Loaded>>;
  static auto& mutex = *new std::mutex;
  const char* override_path = std::getenv("SYNCFREE_LIBCUDA");
  const std::string path = override_path && *override_path ? override_path : "libcuda.so.1";
  const std::lock_guard lock(mutex);
  auto& loaded = tables[path];
  if (loaded == nullptr) {
    loaded = std::make_unique<Loaded>();
    load(*loaded, path);
  }
  return *loaded;
}

}  // namespace

std::string Driver::describe(Result result, const char* call) const {
  return std::string(call) + " failed: " + words(*this, result);
}

std::string status() {
  return library().problem;
}

const Driver& driver() {
  const Loaded& loaded = library();
  if (!loaded.problem.empty()) throw Error("no CUDA driver can be used here: " + loaded.problem);
  return loaded.driver;
}

InContext::InContext(const Driver& driver, Context context) : driver_(driver) {
  Context current = nullptr;
  driver.check(driver.context_get_current(&current), "cuCtxGetCurrent");
  if (current == context) return;
  driver.check(driver.context_push(context), "cuCtxPushCurrent");
  pushed_ = true;
}

InContext::~InContext() {
  Context context = nullptr;
  if (pushed_) driver_.context_pop(&context);
}

Context current_context(const Driver& driver) {
  Context context = nullptr;
  driver.check(driver.context_get_current(&context), "cuCtxGetCurrent");
  if (context == nullptr)
    throw Error("no CUDA context is current on this thread: call torch.cuda.set_device first");
  return context;
}

}  // namespace syncfree::runtime::cuda
