// What each driver function means for the host: which ones wait, which copy, and which may wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace syncfree::runtime {

enum class CallKind : std::uint8_t {
  kNone,       // not watched, or a CUDA runtime function, which only labels
  kWait,       // returns when the GPU is done, by definition
  kCopy,       // synchronous: waits if one end is host memory
  kAsyncCopy,  // waits if the host memory at one end is pageable and the driver stages it
  kPeerCopy,   // synchronous between devices: documented ambiguously
  kFill,       // waits if what is filled is host memory
  kAllocate,
  kRegister,
  kRelease,  // frees: device memory may be in use
  kLoad,     // code
  kGraph,
  kContext,
  kQuery,   // asks, does not wait
  kLaunch,  // puts work on the GPU
};

enum class Direction : std::uint8_t { kUnknown, kToHost, kToDevice };

// The layout of a function's arguments, from the structs of generated_cuda_meta.h.
enum class Layout : std::uint8_t {
  kNone,
  kToHost,          // cuMemcpyDtoH_v2_params: host, device, size
  kToDevice,        // cuMemcpyHtoD_v2_params: device, host, size
  kArrayToHost,     // cuMemcpyAtoH_v2_params: host, array, offset, size
  kHostToArray,     // cuMemcpyHtoA_v2_params: array, offset, host, size
  kAnyToAny,        // cuMemcpy_params: to, from, size
  kCopy2D,          // cuMemcpy2D_v2_params: CUDA_MEMCPY2D*
  kCopy3D,          // cuMemcpy3D_v2_params: CUDA_MEMCPY3D*
  kBatch,           // cuMemcpyBatchAsync_params: to*, from*, sizes*, count, ...
  kPeer,            // cuMemcpyPeer_params: to, context, from, context, size
  kAllocated,       // cuMemHostAlloc_params: pointer*, size
  kAddressAndSize,  // cuMemHostRegister_v2_params: pointer, size
  kAddress,         // cuMemFreeHost_params: pointer; cuEventQuery_params: event
};

// How a call changes the ranges of pinned host memory.
enum class Pinning : std::uint8_t { kNone, kPins, kUnpins };

struct CallInfo {
  CallKind kind = CallKind::kNone;
  Layout layout = Layout::kNone;
  Pinning pinning = Pinning::kNone;
};

struct Arguments {
  std::uint64_t to = 0;    // address; for a free, an allocation or a query the only one
  std::uint64_t from = 0;  // address
  std::uint64_t bytes = 0;
  Direction direction = Direction::kUnknown;
  bool has_host_end = true;  // false: both ends are known to be on the device
};

// A function's name without the suffixes of its ABI: "cuMemcpyDtoH_v2_ptds" is "cuMemcpyDtoH" and
// "cudaMemcpy_ptds_v7000" is "cudaMemcpy".
std::string plain_name(const std::string& name);

// How a driver function is treated, by its full name.
CallInfo driver_call(const std::string& name);

// Whether a CUDA runtime function is worth naming as the caller of a driver function.
bool is_runtime_label(const std::string& name);

// `arguments` points to the call's own; an allocation must have returned.
Arguments read_arguments(Layout layout, const void* arguments);

}  // namespace syncfree::runtime
