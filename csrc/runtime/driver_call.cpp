#include "runtime/driver_call.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

namespace syncfree::runtime {
namespace {

using Kind = CallKind;

struct Entry {
  std::string_view name;  // a plain_name
  CallInfo info;
  bool was_32_bit = false;  // the form without _v2 has 32-bit sizes and addresses
};

constexpr Entry kDriverCalls[] = {
    {"cuCtxSynchronize", {Kind::kWait, Layout::kNone}},
    {"cuEventSynchronize", {Kind::kWait, Layout::kNone}},
    {"cuStreamSynchronize", {Kind::kWait, Layout::kNone}},

    {"cuMemcpyDtoH", {Kind::kCopy, Layout::kToHost}, true},
    {"cuMemcpyHtoD", {Kind::kCopy, Layout::kToDevice}, true},
    {"cuMemcpyAtoH", {Kind::kCopy, Layout::kArrayToHost}, true},
    {"cuMemcpyHtoA", {Kind::kCopy, Layout::kHostToArray}, true},
    {"cuMemcpy2D", {Kind::kCopy, Layout::kCopy2D}, true},
    {"cuMemcpy2DUnaligned", {Kind::kCopy, Layout::kCopy2D}, true},
    {"cuMemcpy3D", {Kind::kCopy, Layout::kCopy3D}, true},
    {"cuMemcpy", {Kind::kCopy, Layout::kAnyToAny}},
    {"cuMemcpyPeer", {Kind::kPeerCopy, Layout::kPeer}},
    {"cuMemcpy3DPeer", {Kind::kPeerCopy, Layout::kNone}},

    {"cuMemcpyDtoHAsync", {Kind::kAsyncCopy, Layout::kToHost}, true},
    {"cuMemcpyHtoDAsync", {Kind::kAsyncCopy, Layout::kToDevice}, true},
    {"cuMemcpyAtoHAsync", {Kind::kAsyncCopy, Layout::kArrayToHost}, true},
    {"cuMemcpyHtoAAsync", {Kind::kAsyncCopy, Layout::kHostToArray}, true},
    {"cuMemcpy2DAsync", {Kind::kAsyncCopy, Layout::kCopy2D}, true},
    {"cuMemcpy3DAsync", {Kind::kAsyncCopy, Layout::kCopy3D}, true},
    {"cuMemcpyAsync", {Kind::kAsyncCopy, Layout::kAnyToAny}},
    {"cuMemcpyBatchAsync", {Kind::kAsyncCopy, Layout::kBatch}},
    {"cuMemcpy3DBatchAsync", {Kind::kAsyncCopy, Layout::kNone}},

    {"cuMemsetD8", {Kind::kFill, Layout::kAddress}, true},
    {"cuMemsetD16", {Kind::kFill, Layout::kAddress}, true},
    {"cuMemsetD32", {Kind::kFill, Layout::kAddress}, true},
    {"cuMemsetD2D8", {Kind::kFill, Layout::kAddress}, true},
    {"cuMemsetD2D16", {Kind::kFill, Layout::kAddress}, true},
    {"cuMemsetD2D32", {Kind::kFill, Layout::kAddress}, true},

    {"cuMemAlloc", {Kind::kAllocate, Layout::kAllocated}, true},
    {"cuMemAllocPitch", {Kind::kAllocate, Layout::kNone}},
    {"cuMemAllocManaged", {Kind::kAllocate, Layout::kAllocated}},
    {"cuMemHostAlloc", {Kind::kAllocate, Layout::kAllocated, Pinning::kPins}},
    {"cuMemAllocHost", {Kind::kAllocate, Layout::kAllocated, Pinning::kPins}, true},
    {"cuMemHostRegister", {Kind::kRegister, Layout::kAddressAndSize, Pinning::kPins}},
    {"cuMemHostUnregister", {Kind::kRelease, Layout::kAddress, Pinning::kUnpins}},
    {"cuMemFreeHost", {Kind::kRelease, Layout::kAddress, Pinning::kUnpins}},
    {"cuMemFree", {Kind::kRelease, Layout::kNone}},
    {"cuMemUnmap", {Kind::kRelease, Layout::kNone}},
    {"cuMemRelease", {Kind::kRelease, Layout::kNone}},
    {"cuArrayDestroy", {Kind::kRelease, Layout::kNone}},
    {"cuMipmappedArrayDestroy", {Kind::kRelease, Layout::kNone}},
    {"cuMemPoolTrimTo", {Kind::kRelease, Layout::kNone}},
    {"cuMemPoolDestroy", {Kind::kRelease, Layout::kNone}},
    {"cuIpcCloseMemHandle", {Kind::kRelease, Layout::kNone}},

    {"cuModuleLoad", {Kind::kLoad, Layout::kNone}},
    {"cuModuleLoadData", {Kind::kLoad, Layout::kNone}},
    {"cuModuleLoadDataEx", {Kind::kLoad, Layout::kNone}},
    {"cuModuleLoadFatBinary", {Kind::kLoad, Layout::kNone}},
    {"cuModuleUnload", {Kind::kRelease, Layout::kNone}},
    {"cuLibraryLoadData", {Kind::kLoad, Layout::kNone}},
    {"cuLibraryLoadFromFile", {Kind::kLoad, Layout::kNone}},
    {"cuLibraryUnload", {Kind::kRelease, Layout::kNone}},
    {"cuKernelGetFunction", {Kind::kLoad, Layout::kNone}},
    {"cuFuncLoad", {Kind::kLoad, Layout::kNone}},

    {"cuGraphInstantiate", {Kind::kGraph, Layout::kNone}},
    {"cuGraphInstantiateWithFlags", {Kind::kGraph, Layout::kNone}},
    {"cuGraphInstantiateWithParams", {Kind::kGraph, Layout::kNone}},
    {"cuGraphUpload", {Kind::kGraph, Layout::kNone}},
    {"cuGraphExecDestroy", {Kind::kRelease, Layout::kNone}},
    {"cuCtxSetLimit", {Kind::kContext, Layout::kNone}},
    {"cuCtxDestroy", {Kind::kRelease, Layout::kNone}},
    {"cuDevicePrimaryCtxRelease", {Kind::kRelease, Layout::kNone}},
    {"cuDevicePrimaryCtxReset", {Kind::kRelease, Layout::kNone}},

    {"cuEventQuery", {Kind::kQuery, Layout::kAddress}},
    {"cuStreamQuery", {Kind::kQuery, Layout::kAddress}},

    {"cuLaunchKernel", {Kind::kLaunch, Layout::kNone}},
    {"cuLaunchKernelEx", {Kind::kLaunch, Layout::kNone}},
    {"cuLaunchCooperativeKernel", {Kind::kLaunch, Layout::kNone}},
    {"cuGraphLaunch", {Kind::kLaunch, Layout::kNone}},
    {"cuEventRecord", {Kind::kLaunch, Layout::kNone}},
    {"cuEventRecordWithFlags", {Kind::kLaunch, Layout::kNone}},
};

constexpr std::string_view kRuntimeLabels[] = {
    "cudaThreadSynchronize",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMalloc",
    "cudaMallocPitch",
    "cudaMallocManaged",
    "cudaMalloc3D",
    "cudaMallocArray",
    "cudaMallocHost",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaFree",
    "cudaFreeHost",
    "cudaFreeArray",
    "cudaFreeMipmappedArray",
    "cudaMemPoolTrimTo",
    "cudaMemPoolDestroy",
    "cudaIpcCloseMemHandle",
    "cudaDeviceReset",
    "cudaDeviceSetLimit",
    "cudaGraphInstantiate",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphExecDestroy",
    "cudaGraphUpload",
    "cudaMemset",
    "cudaMemset2D",
    "cudaMemset3D",
};

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

template <typename T>
T at(const void* base, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof(value));
  return value;
}

// CUmemorytype
enum MemoryType : std::uint32_t { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

struct End {
  MemoryType type;
  std::uint64_t address;
};

// One end of CUDA_MEMCPY2D or CUDA_MEMCPY3D: the fields type, host, device, array.
End end_at(const void* copy, std::size_t type_offset) {
  const auto type = static_cast<MemoryType>(at<std::uint32_t>(copy, type_offset));
  const auto host = at<std::uint64_t>(copy, type_offset + 8);
  const auto device = at<std::uint64_t>(copy, type_offset + 16);
  return {type, type == kHost ? host : type == kArray ? 0 : device};
}

Arguments between(End from, End to, std::uint64_t bytes) {
  Arguments read{to.address, from.address, bytes};
  if (to.type == kHost && from.type != kHost) read.direction = Direction::kToHost;
  if (from.type == kHost && to.type != kHost) read.direction = Direction::kToDevice;
  const auto may_be_host = [](End end) { return end.type == kHost || end.type == kUnified; };
  read.has_host_end = may_be_host(from) || may_be_host(to);
  return read;
}

}  // namespace

std::string plain_name(const std::string& name) {
  std::string_view rest = name;
  while (true) {
    const auto end = rest.find_last_not_of("0123456789");
    if (end != rest.npos && end + 1 < rest.size() && end > 0 && rest.substr(end - 1, 2) == "_v") {
      rest.remove_suffix(rest.size() - end + 1);
    } else if (rest.ends_with("_ptsz") || rest.ends_with("_ptds")) {
      rest.remove_suffix(5);
    } else {
      return std::string(rest);
    }
  }
}

CallInfo driver_call(const std::string& name) {
  const std::string plain = plain_name(name);
  const auto entry = std::find_if(std::begin(kDriverCalls), std::end(kDriverCalls),
                                  [&](const Entry& each) { return each.name == plain; });
  if (entry == std::end(kDriverCalls)) return {};
  CallInfo info = entry->info;
  const auto version = name.find("_v");
  const bool has_version = version != name.npos && is_digit(name[version + 2]);
  if (entry->was_32_bit && !has_version) {
    // The form for programs older than CUDA 3.2: its name is understood, its arguments are not.
    info.layout = Layout::kNone;
    info.pinning = Pinning::kNone;
  }
  return info;
}

bool is_runtime_label(const std::string& name) {
  const std::string plain = plain_name(name);
  // Copies have many forms; all count.
  if (plain.starts_with("cudaMemcpy")) return true;
  return std::find(std::begin(kRuntimeLabels), std::end(kRuntimeLabels), plain) !=
         std::end(kRuntimeLabels);
}

Arguments read_arguments(Layout layout, const void* arguments) {
  const auto word = [&](std::size_t index) { return at<std::uint64_t>(arguments, 8 * index); };
  switch (layout) {
    case Layout::kNone:
      return {};
    case Layout::kToHost:
      return {word(0), word(1), word(2), Direction::kToHost};
    case Layout::kToDevice:
      return {word(0), word(1), word(2), Direction::kToDevice};
    case Layout::kArrayToHost:
      return {word(0), 0, word(3), Direction::kToHost};
    case Layout::kHostToArray:
      return {0, word(2), word(3), Direction::kToDevice};
    case Layout::kAnyToAny:
      return {word(0), word(1), word(2)};
    case Layout::kPeer:
      return {word(0), word(2), word(4)};
    case Layout::kCopy2D: {
      const void* copy = at<const void*>(arguments, 0);
      return between(end_at(copy, 16), end_at(copy, 72),
                     at<std::uint64_t>(copy, 112) * at<std::uint64_t>(copy, 120));
    }
    case Layout::kCopy3D: {
      const void* copy = at<const void*>(arguments, 0);
      return between(end_at(copy, 32), end_at(copy, 120),
                     at<std::uint64_t>(copy, 176) * at<std::uint64_t>(copy, 184) *
                         at<std::uint64_t>(copy, 192));
    }
    case Layout::kBatch: {
      const auto count = word(3);
      if (count == 0) return {};
      const auto element = [&](std::size_t array, std::uint64_t index) {
        return at<std::uint64_t>(at<const void*>(arguments, 8 * array), 8 * index);
      };
      // The first copy stands for the batch: batches are made of copies of one kind.
      Arguments read{element(0, 0), element(1, 0)};
      for (std::uint64_t i = 0; i < count; ++i) read.bytes += element(2, i);
      return read;
    }
    case Layout::kAllocated: {
      const void* pointer = at<const void*>(arguments, 0);
      return {pointer == nullptr ? 0 : at<std::uint64_t>(pointer, 0), 0, word(1)};
    }
    case Layout::kAddressAndSize:
      return {word(0), 0, word(1)};
    case Layout::kAddress:
      return {word(0)};
  }
  return {};
}

}  // namespace syncfree::runtime
